package loadbalance

import (
	"cmp"
	"math"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// A task carries unforeseen load when it has this much of what was foretold more, and so
	// many standard deviations. What single reports are off by is about a fifth with costs
	// that have a heavy tail (Pareto, 1.5) at 400 requests, and a twentieth when requests are
	// counted.
	unforeseen, unforeseenSigma = .3, 4
	// deviationReports is how many reports a task the variance is learnt from, as a moving
	// mean: a minute of them.
	deviationReports = 60
	// schooled is after how many reports a task it is known, and firstDeviation what a report
	// is taken to be off by before any has been seen, as a share of what was foretold.
	schooled, firstDeviation = 10, .25
)

// Deviation learns how far the loads in tasks' reports are off what was foretold. It takes
// their variance to grow with the load, as that of independent requests does whatever they
// cost. The zero value knows nothing. It is not safe for concurrent use.
type Deviation struct {
	variance float64 // by unit of load
	reports  float64 // that it is made of, up to deviationReports a task
}

// Learn takes in a task's report, one of about so many in each interval between reports.
// A deviation counts for at most what was foretold, lest what one round is held for put
// off the next.
func (d *Deviation) Learn(load, foretold float64, tasks int) {
	if !(foretold > 0) || !(load >= 0) || math.IsInf(load+foretold, 1) {
		return
	}
	off := min(math.Abs(load-foretold), foretold)
	d.reports = min(d.reports+1, deviationReports*float64(max(tasks, 1)))
	d.variance += (off*off/foretold - d.variance) / d.reports
}

// Unforeseen reports whether a load is so far above what was foretold that it is no
// accident: until enough reports of so many tasks have been learnt from, at least what would
// be none where costs have a heavy tail.
func (d *Deviation) Unforeseen(load, foretold float64, tasks int) bool {
	unknown := max(1-d.reports/(schooled*float64(max(tasks, 1))), 0)
	variance := d.variance + unknown*max(firstDeviation*firstDeviation*foretold-d.variance, 0)
	return foretold > 0 && load >= (1+unforeseen)*foretold && load-foretold >= unforeseenSigma*math.Sqrt(variance*foretold)
}

// Common is the load that two reports of a task agree on: of each range that both have, the
// smaller rate. Where requests differ in what they cost, one report alone is often above
// anything that could have been foretold, because of one request; hardly ever are two, in
// the same range.
func Common(l, m *assignment.Load) (sum float64) {
	if len(l.Rate) != len(l.Ranges) || len(m.Rate) != len(m.Ranges) {
		return 0
	}
	for i, j := 0, 0; i < len(l.Ranges) && j < len(m.Ranges); {
		switch c := cmp.Compare(l.Ranges[i].Start, m.Ranges[j].Start); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			if l.Ranges[i] == m.Ranges[j] {
				sum += min(sane(l.Rate[i]), sane(m.Rate[j]))
			}
			i, j = i+1, j+1
		}
	}
	return sum
}
