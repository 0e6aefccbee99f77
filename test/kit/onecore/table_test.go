package onecore

import "testing"

// TestTable: medians over turns, in the order of the samples, and a server that is not the same
// in all turns is void.
func TestTable(t *testing.T) {
	var all []sample
	for turn := range 4 {
		for _, load := range []float64{.5, 10} {
			x := float64(turn)
			served := [...]float64{0, 0, .25, .5, 1}
			all = append(all,
				sample{server: "nothing", load: load, perCPU: 100 + 5*x, good: x, cpu: 1, p99: 100 * x, served: served},
				sample{server: "slicer", load: load, perCPU: 100 + 10*x, good: 1, cpu: .9, refused: x / 10, held: .5, p99: 20, p99Plus: 10, served: served})
		}
	}
	const want = `load  server   good/CPU  CPU/CPU  refused  held  p99 ms  of critical_plus  critical_plus  critical  sheddable_plus  sheddable
0.5   nothing  1.50      1.00     0.00     0.00  150     0                 1.00           0.50      0.25            0.00
0.5   slicer   1.00      0.90     0.15     0.50  20      10                1.00           0.50      0.25            0.00  void: 0.26 at 0.5
10    nothing  1.50      1.00     0.00     0.00  150     0                 1.00           0.50      0.25            0.00
10    slicer   1.00      0.90     0.15     0.50  20      10                1.00           0.50      0.25            0.00  void: 0.26 at 0.5
`
	if got := table(all); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}
