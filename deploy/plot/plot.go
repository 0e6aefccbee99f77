// Package plot draws the figures of slicerctl and of the docs as SVG: panels of lines or of
// clouds of points, in a grid, under one title and with one legend.
//
//	f := plot.Figure{Title: "Load", Panels: []plot.Panel{{YLabel: "requests/s", Series: []plot.Series{{Name: "a", X: xs, Y: ys}}}}}
//	err := f.WriteFile("load.svg")
//
// It promises the same bytes for the same figure, and files of some ten
// kilobytes: lines of many points are averaged, clouds are drawn as the cells of
// a grid that hold a point.
package plot

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is panels with what they have in common.
type Figure struct {
	Title string
	// Notes are printed small under the title.
	Notes []string
	// Columns is into how many columns the panels are laid out. Default 1.
	Columns int
	Panels  []Panel
}

// Panel is one pair of axes.
type Panel struct {
	Title, XLabel, YLabel string
	Series                []Series
	// Cloud draws the series' points as a cloud and the mean over it as a line.
	Cloud bool
	// LogX and LogY are for axes whose values are all above 0.
	LogX, LogY bool
	// YMin and YMax widen the axis to at least these.
	YMin, YMax float64
}

// Series is points in order of X. Points that are not finite are left out.
type Series struct {
	Name string
	X, Y []float64
	// Strong lines are drawn above and thicker than others.
	Strong bool
}

// palette are colours that can be told apart also by people who see red and green as one.
var palette = []color.RGBA{
	{R: 0x00, G: 0x5a, B: 0xb5, A: 255}, {R: 0xd5, G: 0x5e, B: 0x00, A: 255}, {R: 0x77, G: 0x77, B: 0x77, A: 255},
	{R: 0x00, G: 0x9e, B: 0x73, A: 255}, {R: 0xcc, G: 0x79, B: 0xa7, A: 255}, {R: 0xc4, G: 0x9a, B: 0x00, A: 255},
}

// dashes tell lines apart without colour; the first is solid.
var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}, {4, 4}, {1, 3}}

const (
	panelWidth, panelHeight = 640, 240
	cellWidth, cellHeight   = 330, 230
	legendWidth             = 130
	titleHeight, noteHeight = 26, 15
	margin                  = 8
)

// WriteFile draws into a file, which is replaced as a whole.
func (f Figure) WriteFile(path string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".plot-*")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	defer os.Remove(tmp.Name())
	err = f.Write(tmp)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return nil
}

// Writable reports whether WriteFile could write a file now, before long work for what it
// is to show. It leaves nothing behind.
func Writable(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("plot %s: it is a directory", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".plot-*")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// Write draws the figure as SVG.
func (f Figure) Write(w io.Writer) error {
	cols := max(f.Columns, 1)
	rows := (len(f.Panels) + cols - 1) / cols
	names, legend := f.legend()
	width, height := vg.Length(panelWidth), vg.Length(panelHeight*rows)
	if cols > 1 {
		width, height = vg.Length(cellWidth*cols), vg.Length(cellHeight*rows)
	}
	top := vg.Length(titleHeight + noteHeight*len(f.Notes))
	right := vg.Length(margin)
	if len(names) > 1 {
		right += legendWidth
	}
	canvas := vgsvg.New(width+right, height+top)
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	f.head(c)
	if len(names) > 1 {
		legend.Draw(draw.Crop(c, width+margin, 0, 0, -top-margin))
	}
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, cols)
		for j := range grid[i] {
			if n := i*cols + j; n < len(f.Panels) {
				grid[i][j] = f.Panels[n].draw(names)
			}
		}
	}
	tiles := draw.Tiles{Rows: rows, Cols: cols, PadX: 12, PadY: 10, PadLeft: margin, PadRight: margin, PadBottom: margin}
	for i, line := range plot.Align(grid, tiles, draw.Crop(c, 0, -right, 0, -top)) {
		for j, at := range line {
			if grid[i][j] != nil {
				grid[i][j].Draw(at)
			}
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

func (f Figure) head(c draw.Canvas) {
	sty := plot.New().Title.TextStyle
	sty.Font = sans(14)
	sty.XAlign, sty.YAlign = draw.XLeft, draw.YBottom
	y := c.Max.Y - titleHeight + margin/2
	c.FillText(sty, vg.Point{X: c.Min.X + margin, Y: y}, f.Title)
	sty.Font.Size = 10
	sty.Color = color.Gray{Y: 0x55}
	for _, n := range f.Notes {
		y -= noteHeight
		c.FillText(sty, vg.Point{X: c.Min.X + margin, Y: y}, n)
	}
}

// legend names the lines of all panels, in order of appearance.
func (f Figure) legend() (names []string, l plot.Legend) {
	l = plot.NewLegend()
	l.Top, l.Left, l.Padding, l.TextStyle.Font = true, true, 3, sans(10)
	for _, p := range f.Panels {
		if p.Cloud {
			continue
		}
		for _, s := range p.Series {
			if index(names, s.Name) < 0 {
				l.Add(s.Name, &plotter.Line{LineStyle: style(len(names), s.Strong)})
				names = append(names, s.Name)
			}
		}
	}
	return names, l
}

func sans(size vg.Length) font.Font {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	return f
}

func index(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return -1
}

func style(n int, strong bool) draw.LineStyle {
	s := draw.LineStyle{Color: palette[n%len(palette)], Width: .9, Dashes: dashes[n/len(palette)%len(dashes)]}
	if strong {
		s.Width = 1.8
	}
	return s
}

func (p Panel) draw(names []string) *plot.Plot {
	out := plot.New()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.XLabel, p.YLabel
	out.Title.TextStyle.Font = sans(11)
	for _, a := range []*plot.Axis{&out.X, &out.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = sans(10), sans(9)
		a.Padding = 2
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	out.Add(grid)
	for _, strong := range []bool{false, true} {
		for _, s := range p.Series {
			if s.Strong != strong {
				continue
			}
			if p.Cloud {
				out.Add(newCloud(s))
				continue
			}
			if xy := thin(s); len(xy) > 0 {
				out.Add(&plotter.Line{XYs: xy, LineStyle: style(max(index(names, s.Name), 0), s.Strong)})
			}
		}
	}
	if p.YMin != 0 || p.YMax != 0 {
		out.Y.Min, out.Y.Max = min(out.Y.Min, p.YMin), max(out.Y.Max, p.YMax)
	}
	scale(&out.X, p.LogX)
	scale(&out.Y, p.LogY)
	return out
}

// scale makes an axis logarithmic if it can be, and sensible if it is empty.
func scale(a *plot.Axis, log bool) {
	if math.IsInf(a.Min, 0) || math.IsInf(a.Max, 0) {
		a.Min, a.Max = 0, 1
	}
	if a.Min == a.Max {
		a.Max += max(math.Abs(a.Max)/10, 1e-3)
	}
	a.Tick.Marker = plot.TickerFunc(linearTicks)
	if log && a.Min > 0 {
		a.Scale = plot.LogScale{}
		a.Tick.Marker = plot.TickerFunc(logTicks)
	}
}

// logTicks are round numbers, as many as are needed for four or so.
func logTicks(lo, hi float64) []plot.Tick {
	for _, steps := range [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7}, {1, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3, 5}} {
		var ticks []plot.Tick
		for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
			for _, s := range steps {
				if v := s * math.Pow(10, e); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
					ticks = append(ticks, tick(v))
				}
			}
		}
		if len(ticks) >= 4 {
			return ticks
		}
	}
	return linearTicks(lo, hi)
}

// linearTicks are round numbers, seven at most.
func linearTicks(lo, hi float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/6)))
	for _, by := range []float64{1, 2, 2.5, 5, 10} {
		if (hi-lo)/(step*by) <= 6 {
			step *= by
			break
		}
	}
	var ticks []plot.Tick
	for n := math.Ceil(lo/step - 1e-9); n*step <= hi+step*1e-9; n++ {
		ticks = append(ticks, tick(n*step+0)) // + 0: no minus zero
	}
	return ticks
}

func tick(v float64) plot.Tick { return plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)} }
