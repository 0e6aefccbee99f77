package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

// Limit is the least routing availability of a phase.
const Limit = 0.9999

// Span is a time. One that has not ended goes on for ever.
type Span struct {
	From, To time.Duration
}

// forever is the end of what has none.
const forever = time.Duration(1<<63 - 1)

func touches(spans []Span, from, to time.Duration) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.From <= to && from <= s.To })
}

// Stored is an assignment, and when it was in the store at the latest.
type Stored struct {
	At time.Duration
	A  *assignment.Assignment
}

// Pair is a caller and a task.
type Pair struct{ Client, Task string }

// World is what was done, and what assigners made of it.
type World struct {
	Assignments []Stored         // in order
	Down        map[string]Spans // tasks that did not run, and clients that stood still
	Apart       map[Pair]Spans   // that could not reach one another
	Mute        map[string]Spans // tasks that no Distributor could hear
}

// Spans are in no particular order.
type Spans = []Span

// Phase is a part of a run. Each begins where the one before has ended.
type Phase struct {
	Name     string
	From, To time.Duration
}

// Result is how calls that began in a phase have fared.
type Result struct {
	Phase   string
	Seconds float64
	Calls   int
	// Raw is the share of the calls that were answered, by any task.
	Raw float64
	// Judged are those whose owner was there for them, of which Lost were not
	// answered. Routing is the share that was.
	Judged, Lost int
	Routing      float64
	// Misrouted is the share of the answers that came from a task that did not own
	// the key by what it knew.
	Misrouted float64
	// Generations is how many assignments were stored, which moved this much of the keyspace.
	Generations int
	Moved       float64
	// Left is how much of the keyspace tasks owned when they began to drain, were stored
	// as dead or started anew.
	Left float64
	// FalseDeaths is how many times a task was stored as dead that ran and could be heard.
	FalseDeaths int
	// WorstGap is the longest that a client went without an answer, seconds.
	WorstGap float64
	// Slowest is the time that the slowest of the judged calls took that were answered.
	Slowest float64
	// Examples are some of the calls that were lost, and the tasks that were not dead.
	Examples []string `json:",omitempty"`
}

// maxExamples is how many lost calls a result shows.
const maxExamples = 20

// Judge says how each phase went.
func Judge(w *World, phases []Phase, calls []record.Call) []Result {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b record.Call) int { return cmp.Compare(a.Begin, b.Begin) })
	w.hearsay(calls)
	out := make([]Result, len(phases))
	for i, p := range phases {
		out[i] = w.judge(p, between(calls, p.From, p.To))
	}
	return out
}

func between(calls []record.Call, from, to time.Duration) []record.Call {
	at := func(t time.Duration) int {
		return sort.Search(len(calls), func(i int) bool { return calls[i].Begin >= t })
	}
	return calls[at(from):at(to)]
}

// hearsay corrects when assignments were stored: not after a client held them.
func (w *World) hearsay(calls []record.Call) {
	for _, c := range calls {
		i := sort.Search(len(w.Assignments), func(i int) bool { return w.Assignments[i].A.Generation() > c.Generation })
		for i--; i >= 0 && w.Assignments[i].At > c.Begin; i-- {
			w.Assignments[i].At = c.Begin
		}
	}
}

// newest is what was stored at a time, nil if nothing was.
func (w *World) newest(at time.Duration) *assignment.Assignment {
	i := sort.Search(len(w.Assignments), func(i int) bool { return w.Assignments[i].At > at })
	if i == 0 {
		return nil
	}
	return w.Assignments[i-1].A
}

// there reports whether a call had owners that ran and could be reached all the while, by
// a caller that ran: of the replicas of a slice any may be asked, so all of them. It
// names the first.
func (w *World) there(c record.Call) (owner string, ok bool) {
	a := w.newest(c.Begin)
	if a == nil || touches(w.Down[c.Client], c.Begin, c.End) {
		return "", false
	}
	owners := a.Lookup(assignment.KeyOf(c.Key))
	for t := range owners.All() {
		if touches(w.Down[t.Name], c.Begin, c.End) || touches(w.Apart[Pair{c.Client, t.Name}], c.Begin, c.End) {
			return "", false
		}
	}
	return owners.At(0).Name, true
}

func (w *World) judge(p Phase, calls []record.Call) Result {
	r := Result{Phase: p.Name, Seconds: (p.To - p.From).Seconds(), Calls: len(calls)}
	r.Generations, r.Moved, r.Left = w.moves(p)
	r.Examples = w.falseDeaths(p)
	r.FalseDeaths = len(r.Examples)
	answered, misrouted := 0, 0
	for _, c := range calls {
		owner, ok := w.there(c)
		if ok {
			r.Judged++
		}
		if c.Err != "" {
			if ok {
				r.Lost++
				if r.Lost <= maxExamples {
					r.Examples = append(r.Examples, w.explain(p, c, owner))
				}
			}
			continue
		}
		answered++
		if !c.Owned {
			misrouted++
		}
		if ok {
			r.Slowest = max(r.Slowest, (c.End - c.Begin).Seconds())
		}
	}
	r.WorstGap = gap(p, calls)
	r.Raw, r.Routing, r.Misrouted = share(answered, len(calls)), share(r.Judged-r.Lost, r.Judged), share(misrouted, answered)
	return r
}

// gap is the longest time between two answers to one client.
func gap(p Phase, calls []record.Call) float64 {
	ends := map[string][]time.Duration{}
	for _, c := range calls {
		if ends[c.Client] == nil {
			ends[c.Client] = []time.Duration{p.From}
		}
		if c.Err == "" {
			ends[c.Client] = append(ends[c.Client], c.End)
		}
	}
	var worst time.Duration
	for _, at := range ends {
		slices.Sort(at)
		at = append(at, max(p.To, at[len(at)-1]))
		for i := 1; i < len(at); i++ {
			worst = max(worst, at[i]-at[i-1])
		}
	}
	return worst.Seconds()
}

func share(n, of int) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// moves counts the assignments of a phase, how much of the keyspace got owners
// that it did not have before, and how much tasks owned that could not stay.
func (w *World) moves(p Phase) (n int, moved, left float64) {
	for i, s := range w.Assignments {
		if s.At < p.From || s.At >= p.To {
			continue
		}
		n++
		if i > 0 {
			before := w.Assignments[i-1].A
			moved += Moved(before, s.A)
			left += Left(before, s.A)
		}
	}
	return n, moved, left
}

// Left is the share of the keys that tasks own in old which run there and do not in
// next, or run there as another incarnation.
func Left(old, next *assignment.Assignment) (left float64) {
	for s, owners := range old.All() {
		for t := range owners.All() {
			pos, ok := next.Position(t.Name)
			if stays := ok && next.Task(pos).State == assignment.TaskRunning && next.Task(pos).Incarnation == t.Incarnation; t.State == assignment.TaskRunning && !stays {
				left += s.Fraction() / float64(owners.Len())
			}
		}
	}
	return left
}

// A task may be stored as dead so long after it was down or could not be heard: the
// detection of a lost connection, the heartbeat timeout and the write take their time.
// One that leaves says so before its process has ended.
const (
	deathAfter  = 30 * time.Second
	deathBefore = 5 * time.Second
)

// falseDeaths are those tasks that were stored as dead in a phase without reason.
func (w *World) falseDeaths(p Phase) (found []string) {
	for i, s := range w.Assignments {
		if i == 0 || s.At < p.From || s.At >= p.To {
			continue
		}
		before := w.Assignments[i-1].A
		for j := range s.A.NumTasks() {
			t := s.A.Task(j)
			pos, ok := before.Position(t.Name)
			if t.State != assignment.TaskDead || !ok || before.Task(pos).State == assignment.TaskDead || before.Task(pos).Incarnation != t.Incarnation {
				continue
			}
			if from, to := s.At-deathAfter, s.At+deathBefore; !touches(w.Down[t.Name], from, to) && !touches(w.Mute[t.Name], from, to) {
				found = append(found, fmt.Sprintf("%s was stored as dead by generation %d at %.3f s, and was not", t.Name, s.A.Generation(), (s.At-p.From).Seconds()))
			}
		}
	}
	return found
}

// Moved is the share of the keys that have an owner in next that did not own them in old.
func Moved(old, next *assignment.Assignment) (moved float64) {
	for i, j := 0, 0; i < old.NumSlices() && j < next.NumSlices(); {
		s, t := old.Slice(i), next.Slice(j)
		both, _ := s.Intersect(t)
		before := map[string]bool{}
		for o := range old.Replicas(i).All() {
			before[o.Name] = true
		}
		fresh := 0
		for o := range next.Replicas(j).All() {
			if !before[o.Name] {
				fresh++
			}
		}
		moved += both.Fraction() * float64(fresh) / float64(max(next.Replicas(j).Len(), 1))
		if s.End <= t.End {
			i++
		}
		if t.End <= s.End {
			j++
		}
	}
	return moved
}

// explain says what is known of a lost call.
func (w *World) explain(p Phase, c record.Call, owner string) string {
	a := w.newest(c.Begin)
	text := fmt.Sprintf("%s asked for %s at %.3f s, held generation %d, owner %s by generation %d", c.Client, c.Key,
		(c.Begin - p.From).Seconds(), c.Generation, owner, a.Generation())
	for i, s := range w.Assignments {
		if s.A.Generation() == a.Generation() {
			text += fmt.Sprintf(" (stored at %.3f s", (s.At - p.From).Seconds())
			for ; i > 0; i-- {
				if before := w.Assignments[i-1].A.Lookup(assignment.KeyOf(c.Key)); before.At(0).Name != owner {
					text += fmt.Sprintf("; %s before generation %d, %.3f s", before.At(0).Name, w.Assignments[i].A.Generation(), (w.Assignments[i].At - p.From).Seconds())
					break
				}
			}
			text += ")"
			break
		}
	}
	return text + fmt.Sprintf("; after %.3f s: %s", (c.End-c.Begin).Seconds(), c.Err)
}
