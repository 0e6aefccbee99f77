package plot_test

import (
	"bytes"
	"encoding/xml"
	"math"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/deploy/plot"
)

func draw(t *testing.T, f plot.Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	var any struct{}
	if err := xml.Unmarshal(b.Bytes(), &any); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ramp(n int) (x, y []float64) {
	for i := range n {
		x, y = append(x, float64(i+1)), append(y, float64(i%7)/7)
	}
	return x, y
}

func TestFigures(t *testing.T) {
	x, y := ramp(100_000)
	inf := []float64{math.Inf(1), math.NaN(), math.Inf(-1)}
	for _, c := range []struct {
		name string
		f    plot.Figure
		want []string
	}{
		{"nothing", plot.Figure{Title: "none"}, []string{"none"}},
		{"an empty panel", plot.Figure{Panels: []plot.Panel{{YLabel: "y", LogY: true}}}, []string{">y<"}},
		{"one point", plot.Figure{Panels: []plot.Panel{{Series: []plot.Series{{X: []float64{1}, Y: []float64{1}}}, LogX: true, LogY: true}}}, nil},
		{"nothing finite", plot.Figure{Panels: []plot.Panel{{Series: []plot.Series{{X: inf, Y: inf}}}, {Cloud: true, Series: []plot.Series{{X: inf, Y: inf}}}}}, nil},
		{"lines", plot.Figure{Title: "a < b", Notes: []string{"note"}, Panels: []plot.Panel{{Title: "p", XLabel: "x, s", Series: []plot.Series{{Name: "one", X: x, Y: y}, {Name: "two", X: x, Y: y, Strong: true}}}}}, []string{"a &lt; b", ">note<", ">x, s<", ">one<", ">two<"}},
		{"clouds", plot.Figure{Columns: 2, Panels: []plot.Panel{{Cloud: true, LogX: true, Series: []plot.Series{{X: x, Y: y}}}, {Cloud: true, Series: []plot.Series{{X: x, Y: y}}}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := draw(t, c.f)
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q", w)
				}
			}
			if len(got) > 100_000 || strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
				t.Errorf("%d bytes, or numbers that are none", len(got))
			}
			if draw(t, c.f) != got {
				t.Error("drawn again, it differs")
			}
		})
	}
}
