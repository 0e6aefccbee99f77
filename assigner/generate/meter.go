package generate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance"
)

// meter gathers what tasks report of their load between two rounds: a task
// reports about each second, and a round is better off with all of it than with
// the last second.
type meter struct {
	tasks map[string]*gauge
	fresh int // gauges with something new since the last round
}

// gauge is the mean of a task's reports since the last round, weighted by how much
// of their windows lies after it: what was before has been answered, and a task
// that could not report for long would say for long what no longer is. When there
// was no report since, it is what it was.
type gauge struct {
	incarnation uint64
	session     membership.Session // that brought the newest report
	sequence    uint64             // of that one, within the session
	load        assignment.Load    // rates are means
	weight      time.Duration      // of the reports in load together
	last        assignment.Load    // the newest report as it came
	smooth      float64            // total load, a moving mean over about smoothOver
	fresh       bool
	shared      bool // load's slices are in use by a round: not to be written
}

// smoothOver is how far back the load that is shown to people reaches.
const smoothOver = 5 * time.Second

func newMeter() meter { return meter{tasks: make(map[string]*gauge)} }

// add takes in a report that comes some time after the last round. Older ones
// than the last are ignored.
func (m *meter) add(task string, incarnation uint64, session membership.Session, sequence uint64, l *assignment.Load, since time.Duration) {
	g := m.tasks[task]
	if g == nil || g.incarnation != incarnation {
		if g == nil && len(m.tasks) >= assignment.MaxTasks {
			return
		}
		if g != nil && g.fresh {
			m.fresh--
		}
		g = &gauge{incarnation: incarnation}
		m.tasks[task] = g
	} else if session == g.session && sequence <= g.sequence {
		return
	}
	w := 1 - math.Exp(-float64(l.Window)/float64(smoothOver))
	if g.last.Window == 0 {
		w = 1
	}
	g.smooth += w * (l.Total - g.smooth)
	g.session, g.sequence, g.last = session, sequence, *l
	if !g.fresh {
		m.fresh++
	}
	weight := min(l.Window, max(since, time.Millisecond))
	switch {
	case g.fresh && g.sameShape(l):
		g.mix(l, weight)
	default:
		g.load, g.weight, g.shared = *l, weight, true // the report's own slices are not ours to write
	}
	g.fresh = true
}

// sameShape reports whether l measures what the mean measures.
func (g *gauge) sameShape(l *assignment.Load) bool {
	return g.load.Generation == l.Generation && g.load.Parts == l.Parts && g.weight > 0 && l.Window > 0 &&
		len(g.load.Rate) == len(l.Rate) && len(g.load.PartRate) == len(l.PartRate) &&
		slices.Equal(g.load.Ranges, l.Ranges)
}

// mix takes l into the mean with a weight.
func (g *gauge) mix(l *assignment.Load, weight time.Duration) {
	if g.shared {
		g.load.Rate, g.load.PartRate = slices.Clone(g.load.Rate), slices.Clone(g.load.PartRate)
		g.shared = false
	}
	w := float64(weight) / float64(g.weight+weight)
	toward := func(mean []float64, v []float64) {
		for i := range mean {
			mean[i] += w * (v[i] - mean[i])
		}
	}
	toward(g.load.Rate, l.Rate)
	toward(g.load.PartRate, l.PartRate)
	g.load.Hot = mixHot(g.load.Hot, l.Hot, w)
	g.load.Misrouted += w * (l.Misrouted - g.load.Misrouted)
	g.load.Shed += w * (l.Shed - g.load.Shed)
	g.load.Unserved += w * (l.Unserved - g.load.Unserved)
	g.load.Total += w * (l.Total - g.load.Total)
	g.load.CPU += w * (l.CPU - g.load.CPU)
	g.weight = min(g.weight+weight, 24*time.Hour)
	g.load.Window = min(g.load.Window+l.Window, 24*time.Hour)
}

// mixHot is the mean of two lists of hot keys. A key that one of them leaves out
// had less than all of that list; it is taken to have had nothing.
func mixHot(mean, v []assignment.HotKey, w float64) []assignment.HotKey {
	if len(mean)+len(v) == 0 {
		return nil
	}
	at := make(map[assignment.SliceKey]assignment.HotKey, len(mean)+len(v))
	for _, h := range mean {
		at[h.Key] = assignment.HotKey{Key: h.Key, Rate: (1 - w) * h.Rate, Error: (1 - w) * h.Error}
	}
	for _, h := range v {
		was := at[h.Key]
		at[h.Key] = assignment.HotKey{Key: h.Key, Rate: was.Rate + w*h.Rate, Error: was.Error + w*h.Error}
	}
	out := slices.SortedFunc(maps.Values(at), func(a, b assignment.HotKey) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key))
	})
	return out[:min(len(out), wire.MaxHotKeys)]
}

// reports are the means of all tasks, in order of name. They stay as they are
// whatever is added later.
func (m *meter) reports() []loadbalance.Report {
	out := make([]loadbalance.Report, 0, len(m.tasks))
	for _, name := range slices.Sorted(maps.Keys(m.tasks)) {
		g := m.tasks[name]
		g.shared = true
		out = append(out, loadbalance.Report{Task: name, Incarnation: g.incarnation, Load: g.load})
	}
	return out
}

// begin starts new means. Tasks that are not in keep are forgotten.
func (m *meter) begin(keep func(task string) bool) {
	for name, g := range m.tasks {
		if !keep(name) {
			delete(m.tasks, name)
			continue
		}
		g.fresh = false
	}
	m.fresh = 0
}
