package generate

import (
	"cmp"
	"fmt"
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

	deviation      loadbalance.Deviation
	foretold, sums float64 // of all tasks of which something was foretold: that, and their newest loads
	top            float64 // what was foretold of the hottest task, by weight
	watched        int     // how many such tasks there are
	unforeseen     string  // a task that carries more, in words; "" if there is none
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

	foretold, capacity float64               // by the last round, 0 if nothing was
	from               time.Duration         // reports on earlier times say nothing about that
	of                 assignment.Generation // nor do those of earlier generations
	before, now        assignment.Load       // ranges and rates of the last two reports that do
}

// smoothOver is how far back the load that is shown to people reaches.
const smoothOver = 5 * time.Second

// leastSmooth is the least load that is shown, units a second: what is left of a moving mean
// long after the last request is none, and no measure of how even the tasks' loads are.
const leastSmooth = 1e-6

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
	if g.smooth += w * (l.Total - g.smooth); g.smooth < leastSmooth {
		g.smooth = 0
	}
	if g.foretold > 0 {
		m.sums += l.Total - g.last.Total
	}
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
	g.load.Cores += w * (l.Cores - g.load.Cores)
	g.load.Memory += w * (l.Memory - g.load.Memory)
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

// newest are the newest reports of all tasks, in order of name, and over what time they were
// measured.
func (m *meter) newest() (out []loadbalance.Report, window time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(m.tasks)) {
		g := m.tasks[name]
		out = append(out, loadbalance.Report{Task: name, Incarnation: g.incarnation, Load: g.last})
		window = max(window, g.last.Window)
	}
	return out, min(window, smoothOver)
}

// foretell takes in what tasks are expected to carry from now on. Of those of which
// something else was expected before, older reports say nothing about it.
func (m *meter) foretell(now time.Duration, of assignment.Generation, tasks []assignment.Task, load []float64) {
	m.foretold, m.sums, m.top, m.watched, m.unforeseen = 0, 0, 0, 0, ""
	for _, g := range m.tasks {
		g.capacity = 0
	}
	for i, t := range tasks {
		g := m.tasks[t.Name]
		if g == nil || i >= len(load) || g.incarnation != t.Incarnation || !(load[i] > 0) {
			continue
		}
		if math.Abs(load[i]-g.foretold) > .1*load[i] {
			g.from, g.of, g.before, g.now = now, of, assignment.Load{}, assignment.Load{}
		}
		g.foretold, g.capacity = load[i], t.Weight
		m.foretold += g.foretold
		m.sums += g.last.Total
		m.top = max(m.top, g.foretold/g.capacity)
		m.watched++
	}
	for _, g := range m.tasks {
		if g.capacity == 0 {
			g.foretold = 0
		}
	}
}

// watch compares a task's newest report, and the one before, with what was foretold, and
// with what all of them report by now: that more comes to all is nothing that a round
// could answer.
func (m *meter) watch(now time.Duration, task string) {
	g := m.tasks[task]
	if g == nil || g.foretold <= 0 || g.last.Window <= 0 || now-g.last.Window < g.from || g.last.Generation < g.of {
		return
	}
	g.before, g.now = g.now, assignment.Load{Ranges: g.last.Ranges, Rate: g.last.Rate}
	if !(m.sums > 0) || !(m.foretold > 0) {
		return
	}
	all := m.sums / m.foretold
	m.deviation.Learn(g.last.Total/all, g.foretold, m.watched)
	if !m.deviation.Unforeseen(g.last.Total/all, g.foretold, m.watched) {
		return
	}
	if load := loadbalance.Common(&g.before, &g.now); load/g.capacity > m.top*all && m.deviation.Unforeseen(load/all, g.foretold, m.watched) {
		m.unforeseen = fmt.Sprintf("%s carries %.4g, %.4g was foretold", task, load, g.foretold*all)
	}
}

// takeUnforeseen returns which task has been found to carry more than was foretold, once.
func (m *meter) takeUnforeseen() string {
	s := m.unforeseen
	m.unforeseen = ""
	return s
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
