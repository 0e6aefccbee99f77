package plot

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// maxPoints is how many points a line is drawn with at most.
const maxPoints = 250

// Averaged is how many points of a series become one in a line; 1 if all are drawn.
func Averaged(points int) int { return max((points+maxPoints-1)/maxPoints, 1) }

// thin averages neighbours until a line has no more than maxPoints.
func thin(s Series) plotter.XYs {
	var all plotter.XYs
	for i, x := range s.X {
		if finite(x) && finite(s.Y[i]) {
			all = append(all, plotter.XY{X: x, Y: s.Y[i]})
		}
	}
	n := Averaged(len(all))
	if n == 1 {
		return all
	}
	var out plotter.XYs
	for len(all) > 0 {
		part := all[:min(n, len(all))]
		all = all[len(part):]
		var m plotter.XY
		for _, p := range part {
			m.X += p.X / float64(len(part))
			m.Y += p.Y / float64(len(part))
		}
		out = append(out, m)
	}
	return out
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// The grid of a cloud. Its X is cut on a logarithmic scale if that can be.
const cloudColumns, cloudRows = 100, 80

// cloud is where the points of a series lie.
type cloud struct {
	xmin, xmax, ymin, ymax float64
	log                    bool
	count                  [cloudColumns][cloudRows]int
	sum                    [cloudColumns]float64
	in                     [cloudColumns]int
}

func newCloud(s Series) *cloud {
	c := &cloud{xmin: math.Inf(1), xmax: math.Inf(-1), ymin: math.Inf(1), ymax: math.Inf(-1)}
	for i, x := range s.X {
		if y := s.Y[i]; finite(x) && finite(y) {
			c.xmin, c.xmax, c.ymin, c.ymax = min(c.xmin, x), max(c.xmax, x), min(c.ymin, y), max(c.ymax, y)
		}
	}
	// Levels of different clouds that mean the same shall look the same.
	if c.ymin >= 0 && c.ymax <= 1 {
		c.ymin, c.ymax = 0, 1
	}
	c.log = c.xmin > 0
	for i, x := range s.X {
		if y := s.Y[i]; finite(x) && finite(y) {
			col := place(c.scaled(x), c.scaled(c.xmin), c.scaled(c.xmax), cloudColumns)
			c.count[col][place(y, c.ymin, c.ymax, cloudRows)]++
			c.sum[col] += y
			c.in[col]++
		}
	}
	return c
}

func (c *cloud) scaled(x float64) float64 {
	if c.log {
		return math.Log(x)
	}
	return x
}

// edge is the left edge of a column.
func (c *cloud) edge(col int) float64 {
	lo, hi := c.scaled(c.xmin), c.scaled(c.xmax)
	x := lo + (hi-lo)*float64(col)/cloudColumns
	if c.log {
		return math.Exp(x)
	}
	return x
}

func (c *cloud) level(row int) float64 { return c.ymin + (c.ymax-c.ymin)*float64(row)/cloudRows }

func place(v, lo, hi float64, n int) int {
	if hi <= lo {
		return 0
	}
	return min(max(int((v-lo)/(hi-lo)*float64(n)), 0), n-1)
}

// DataRange is for the axes.
func (c *cloud) DataRange() (xmin, xmax, ymin, ymax float64) { return c.xmin, c.xmax, c.ymin, c.ymax }

// Plot draws the cells by how large a part of their column's points they hold,
// darker the more, and the mean over them.
func (c *cloud) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	shades := []struct {
		least float64
		color color.RGBA
	}{{0, color.RGBA{0xc6, 0xdb, 0xef, 255}}, {.02, color.RGBA{0x8f, 0xbb, 0xdf, 255}}, {.08, color.RGBA{0x4b, 0x8f, 0xc9, 255}}}
	for _, s := range shades {
		var path vg.Path
		for col := range cloudColumns {
			at := (x(c.edge(col)) + x(c.edge(col+1))) / 2
			for row := 0; row < cloudRows; row++ {
				from := row
				for row < cloudRows && c.count[col][row] > 0 && float64(c.count[col][row]) >= s.least*float64(c.in[col]) {
					row++
				}
				if row > from {
					// A stroke as wide as the column takes half the bytes of a rectangle.
					path.Move(vg.Point{X: at, Y: y(c.level(from))})
					path.Line(vg.Point{X: at, Y: y(c.level(row))})
				}
			}
		}
		if len(path) > 0 {
			canvas.SetColor(s.color)
			canvas.SetLineWidth(x(c.edge(1)) - x(c.edge(0)))
			canvas.SetLineDash(nil, 0)
			canvas.Stroke(path)
		}
	}
	var mean []vg.Point
	for col, n := range c.in {
		if n > 0 {
			mean = append(mean, vg.Point{X: x((c.edge(col) + c.edge(col+1)) / 2), Y: y(c.sum[col] / float64(n))})
		}
	}
	canvas.StrokeLines(draw.LineStyle{Color: color.RGBA{0xd5, 0x5e, 0, 255}, Width: 1.2}, mean)
}
