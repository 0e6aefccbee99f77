package onecore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// steady is by how much of their median the answers a CPU-second at the least load may differ
// between the turns of a server. If they differ by more, the machine was not quiet, and what
// was measured of that server says nothing.
const steady = .15

// sample is what came of a server at a load, once.
type sample struct {
	server  string
	load    float64
	perCPU  float64 // answers in time a CPU-second
	good    float64 // that, by what it was at the least load
	cpu     float64 // used, by what the server without admission used
	refused float64 // share, by the server
	held    float64 // share, by the client
	p99     float64 // ms, of what was answered in time
	p99Plus float64 // of that, what is critical_plus
	served  [overload.CriticalPlus + 1]float64
}

func (s *sample) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(s.good, "good/CPU")
	b.ReportMetric(s.cpu, "CPU/CPU")
	b.ReportMetric(s.refused, "refused")
	b.ReportMetric(s.held, "held")
	b.ReportMetric(s.p99, "p99-ms")
	b.ReportMetric(s.p99Plus, "critical_plus-p99-ms")
	for c := overload.Sheddable; c <= overload.CriticalPlus; c++ {
		b.ReportMetric(s.served[c], c.String())
	}
}

// table shows medians over turns for each load and server, in the order in which these come,
// and which servers are void. What clients held back was not sent. The first load is the least.
func table(all []sample) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "load\tserver\tgood/CPU\tCPU/CPU\trefused\theld\tp99 ms\tof critical_plus")
	for c := overload.CriticalPlus; c >= overload.Sheddable; c-- {
		fmt.Fprint(w, "\t", c)
	}
	fmt.Fprintln(w)
	for i, s := range all {
		alike := func(o sample) bool { return o.server == s.server && o.load == s.load }
		if slices.IndexFunc(all, alike) < i {
			continue
		}
		of := func(value func(sample) float64) float64 {
			var values []float64
			for _, o := range all {
				if alike(o) {
					values = append(values, value(o))
				}
			}
			return median(values)
		}
		fmt.Fprintf(w, "%v\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f", s.load, s.server,
			of(func(s sample) float64 { return s.good }), of(func(s sample) float64 { return s.cpu }),
			of(func(s sample) float64 { return s.refused }), of(func(s sample) float64 { return s.held }),
			of(func(s sample) float64 { return s.p99 }), of(func(s sample) float64 { return s.p99Plus }))
		for c := overload.CriticalPlus; c >= overload.Sheddable; c-- {
			fmt.Fprintf(w, "\t%.2f", of(func(s sample) float64 { return s.served[c] }))
		}
		if by := spread(all, s.server); by > steady {
			fmt.Fprintf(w, "\tvoid: %.2f at %v", by, all[0].load)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	return b.String()
}

// spread is by how much of their median the answers a CPU-second of a server differ between
// turns at the least load.
func spread(all []sample, server string) float64 {
	var values []float64
	for _, s := range all {
		if s.server == server && s.load == all[0].load {
			values = append(values, s.perCPU)
		}
	}
	if len(values) == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / median(values)
}

func median(of []float64) float64 {
	slices.Sort(of)
	n := len(of)
	return (of[(n-1)/2] + of[n/2]) / 2
}
