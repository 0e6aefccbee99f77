package sim

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// WriteTable writes one line of figures a result, for people to read.
func WriteTable(w io.Writer, results []*Result) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "algorithm\timbalance\tp95\tmax\tover floor\trest\tkey churn\tload churn\tslices a task\t")
	for _, r := range results {
		s := r.Summary
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f %%\t%.2f %%\t%.0f\t\n", r.Algorithm, s.MeanImbalance, s.P95Imbalance,
			s.MaxImbalance, s.MeanOverFloor, s.MeanRest, 100*s.MeanKeyChurn, 100*s.MeanLoadChurn, s.MaxSlicesPerTask)
	}
	return t.Flush()
}

// WriteSVG draws results of one source: imbalance and key churn over time, and
// the mean of the one against the mean of the other, as in Figure 11 of the
// Slicer paper. Nearer to the lower left corner is better.
func WriteSVG(w io.Writer, results []*Result) error {
	b := bufio.NewWriter(w)
	const width, height = 980, 760
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	over := panel{x: 60, y: 30, w: 640, h: 300, title: "imbalance (max / mean task load), by round", unit: "%.2g"}
	churn := panel{x: 60, y: 390, w: 640, h: 300, title: "key churn (share of the keyspace), by round", unit: "%.2g %%"}
	means := panel{x: 760, y: 30, w: 180, h: 300, title: "means: imbalance by key churn, %", unit: "%.2g"}
	for _, r := range results {
		for i, round := range r.Rounds {
			over.reach(float64(i), round.Imbalance)
			churn.reach(float64(i), 100*round.KeyChurn)
		}
		means.reach(100*r.Summary.MeanKeyChurn, r.Summary.MeanImbalance)
	}
	over.low = 1
	means.low = 1
	for _, p := range []*panel{&over, &churn, &means} {
		p.frame(b)
	}
	for k, r := range results {
		color := colors[k%len(colors)]
		over.line(b, color, r, func(x Round) float64 { return x.Imbalance })
		churn.line(b, color, r, func(x Round) float64 { return 100 * x.KeyChurn })
		x, y := means.at(100*r.Summary.MeanKeyChurn, r.Summary.MeanImbalance)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`+"\n", x, y, color)
		fmt.Fprintf(b, `<rect x="760" y="%d" width="12" height="12" fill="%s"/><text x="780" y="%d">%s</text>`+"\n",
			390+24*k, color, 401+24*k, escape.Replace(r.Algorithm))
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

var (
	colors = []string{"#1b6ca8", "#d1495b", "#8d96a3", "#edae49", "#3c7d3c", "#7b4fa0"}
	escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

// panel is a coordinate system on the page.
type panel struct {
	x, y, w, h  float64
	title, unit string
	low         float64
	right, top  float64
}

// reach makes room for a point.
func (p *panel) reach(x, y float64) {
	p.right, p.top = max(p.right, x), max(p.top, y)
}

// at is where a point lies on the page.
func (p *panel) at(x, y float64) (px, py float64) {
	return p.x + p.w*x/max(p.right, 1e-9), p.y + p.h*(1-(y-p.low)/max(p.top-p.low, 1e-9))
}

func (p *panel) frame(b *bufio.Writer) {
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f">%s</text>`+"\n", p.x, p.y-10, escape.Replace(p.title))
	fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" fill="none" stroke="#444"/>`+"\n", p.x, p.y, p.w, p.h)
	step := niceStep(p.top - p.low)
	for v := p.low; v <= p.top+step/1000; v += step {
		_, y := p.at(0, v)
		fmt.Fprintf(b, `<line x1="%.0f" y1="%.1f" x2="%.0f" y2="%.1f" stroke="#ddd"/>`, p.x, y, p.x+p.w, y)
		fmt.Fprintf(b, `<text x="%.0f" y="%.1f" text-anchor="end">`+p.unit+"</text>\n", p.x-5, y+4, v)
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="end">%.3g</text>`+"\n", p.x+p.w, p.y+p.h+16, p.right)
}

// niceStep divides a range into about five steps of 1, 2 or 5 times a power of ten.
func niceStep(span float64) float64 {
	if !(span > 1e-9) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/5)))
	for _, m := range []float64{1, 2, 5} {
		if span/(m*power) <= 6 {
			return m * power
		}
	}
	return 10 * power
}

func (p *panel) line(b *bufio.Writer, color string, r *Result, value func(Round) float64) {
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, color)
	for i, round := range r.Rounds {
		x, y := p.at(float64(i), value(round))
		fmt.Fprintf(b, "%.1f,%.1f ", x, y)
	}
	fmt.Fprintln(b, `"/>`)
}
