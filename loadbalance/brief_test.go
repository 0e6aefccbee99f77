package loadbalance

import "testing"

// A key becomes hot in the course of a brief measurement, which so sees a part of what it
// carries: how much it is, the next one says, and no mean of the two.
func TestBriefMeasurementIsNoMean(t *testing.T) {
	const slices, usual, hot = 50, 10., 400.
	for _, brief := range []bool{false, true} {
		var s smoother
		s.cells = make([]estimate, slices)
		rate, width := make([]float64, slices), make([]float64, slices)
		for i := range rate {
			rate[i], width[i] = usual, 1./slices
		}
		measure := func(of float64) float64 {
			rate[0] = of
			s.update(rate, width, .25, .25/10)
			return s.cells[0].level
		}
		for range 20 {
			measure(usual)
		}
		s.trust.brief = brief
		first := measure(hot * .7)
		s.trust.afterBrief, s.trust.brief = s.trust.brief, false
		if next := measure(hot); first != hot*.7 || brief != (next == hot) || next > hot {
			t.Errorf("brief %t: estimated %.4g and then %.4g, want %.4g and %.4g, or less if not brief", brief, first, next, hot*.7, hot)
		}
	}
}
