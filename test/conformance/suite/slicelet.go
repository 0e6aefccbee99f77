package suite

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/conformance/line"
)

func sliceletChecks() []Check {
	return []Check{
		{Name: "mode", Ref: refSlicelet, run: checkMode,
			Text: "A task owns nothing while the mode of the job is not known."},
		{Name: "consistent", Ref: refSlicelet, run: checkConsistent,
			Text: "In consistent mode a task that holds no lease owns nothing, whatever the assignment says."},
		{Name: "incarnation", Ref: refSlicelet, run: checkIncarnation,
			Text: "A process has one incarnation on all its streams, and the next process another."},
		{Name: "other-incarnation", Ref: refSlicelet, run: checkOtherIncarnation,
			Text: "What an assignment gives to another incarnation of the name is not the task's."},
		{Name: "name-taken", Ref: refWatch, run: checkNameTaken,
			Text: "After ALREADY_EXISTS the slicelet tries again, as the same incarnation, with waits in between."},
		{Name: "report-interval", Ref: refWatch, run: checkReportInterval, timed: true,
			Text: "Reports come about as often as the Status says, and follow a change of that."},
		{Name: "report-sequence", Ref: refSlicelet, run: checkReportSequence,
			Text: "The sequence of a stream's reports increases, their age is how long they waited, and all of a report is within its bounds."},
		{Name: "load", Ref: refSlicelet, run: checkLoad, timed: true,
			Text: "Reported ranges are slices of the task, the generation is theirs, and rates times windows are the requests handled."},
		{Name: "misrouted", Ref: refSlicelet, run: checkMisrouted, timed: true,
			Text: "Requests for keys that the task does not own are reported as misrouted, and as part of the total."},
		{Name: "drain", Ref: refSlicelet, run: checkDrain,
			Text: "A task that drains reports DRAINING at once, and again in later hellos, and still owns what it is assigned."},
		{Name: "drained", Ref: refSlicelet, run: checkDrained,
			Text: "A drain ends when the slices have moved and converged_generation says that all clients know it, and not before."},
		{Name: "starting", Ref: refSlicelet, run: checkStarting,
			Text: "A task that starts says STARTING until it is ready, and RUNNING at once then. Optional."},
		{Name: "changes", Ref: refSlicelet, run: checkChanges,
			Text: "Listeners are told which ranges have arrived and departed. Optional."},
		{Name: "unacknowledged", Ref: refSlicelet, run: checkUnacknowledged,
			Text: "A slicelet whose Distributor the preferred assigner does not hear goes to another that it hears."},
		{Name: "unacknowledged-stays", Ref: refSlicelet, run: checkUnacknowledgedStays,
			Text: "It stays while no other is heard."},
	}
}

// owned expects the task to own all keys that it does in a, or none.
func (s *session) owned(a *assignment.Assignment, when string) {
	what := "the keys that the assignment gives it"
	if a == nil {
		what = "nothing"
	}
	if saw := s.ownership(a, probes()); saw != "" {
		s.t.fault(fmt.Sprintf("a task that owns %s %s", what, when), saw)
	}
}

func checkMode(t *T) {
	d := t.server("A")
	s := t.start(startConfig{distributors: []*server{d}})
	w := d.accept()
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "an assignment before the first Status")
	s.owned(nil, "before a Status says the mode")
	w.status(greeting())
	s.comesToView(a, "once a Status says the mode")
}

func checkConsistent(t *T) {
	d := t.server("A")
	s := t.start(startConfig{distributors: []*server{d}})
	w := d.accept()
	m := greeting()
	m.Mode = slicerv1.Mode_MODE_CONSISTENT
	w.status(m)
	for _, a := range storyOf(w).chain(2) {
		w.put(a)
		w.wantTaken(a, "an assignment of a job in consistent mode")
		s.owned(nil, "in consistent mode, as it holds no lease")
	}
}

func checkIncarnation(t *T) {
	d := t.server("A")
	start := startConfig{distributors: []*server{d}}
	s := t.start(start)
	w := d.accept()
	w.status(greeting())
	first := w.hello().GetTask().GetIncarnation()
	w.finish(errEnds)
	w = d.accept()
	w.status(greeting())
	if again := w.hello().GetTask().GetIncarnation(); again != first {
		t.fault(fmt.Sprintf("incarnation %#x in the next Hello of the process", first), fmt.Sprintf("%#x", again))
	}
	s.quit()
	t.start(start)
	w = d.accept()
	w.status(greeting())
	if other := w.hello().GetTask().GetIncarnation(); other == first {
		t.fault("another incarnation for another process", fmt.Sprintf("%#x again", other))
	}
}

func checkOtherIncarnation(t *T) {
	s, d, w := t.begin()
	st := storyOf(w)
	mine := st.mine.GetIncarnation()
	st.mine = &slicerv1.Task{Name: me, Incarnation: mine ^ 1}
	a := st.chain(1)[0]
	w.put(a)
	w.wantTaken(a, "an assignment that names another incarnation of the task")
	s.owned(nil, "while the assignment names another incarnation of it")
	st.mine = &slicerv1.Task{Name: me, Incarnation: mine}
	b := st.assign(a, slicesOf(8, turned(1)))
	w.put(b)
	w.wantTaken(b, "an assignment that names the task")
	s.comesToView(b, "once the assignment names the task")
	// And so from then on: a successor has taken its name.
	st.mine = &slicerv1.Task{Name: me, Incarnation: mine + 1}
	c := st.assign(b, slicesOf(8, turned(1)))
	w.put(c)
	w.wantTaken(c, "an assignment that names a successor of the task")
	s.owned(nil, "once the assignment names a successor of it")
	_ = d
}

func checkNameTaken(t *T) {
	d := t.server("A")
	d.refuseAll(status.Error(codes.AlreadyExists, "another live task has the name"))
	t.start(startConfig{distributors: []*server{d}})
	if all := d.waits(2); all[0] < leastWait || all[1] < leastWait {
		t.fault(fmt.Sprintf("waits of at least %s between attempts", leastWait), fmt.Sprint(rounded(all)))
	}
	d.refuseAll(nil)
	w := d.accept()
	w.status(greeting())
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "an assignment, as the name is free")
}

// interval is the mean time between the next n reports.
func (w *watch) interval(n int, every time.Duration) time.Duration {
	t := w.s.t
	within := t.patience + time.Duration(n+2)*every
	seen := 0
	var first time.Time
	last := w.report(within, func(r report) bool {
		if seen++; seen == 1 {
			first = r.at
		}
		return seen > n
	})
	if last == nil {
		t.fault(fmt.Sprintf("%d Reports within %s, as report_interval_ms is %d", n+1, within, every.Milliseconds()), fmt.Sprint(seen))
	}
	return last.at.Sub(first) / time.Duration(n)
}

func checkReportInterval(t *T) {
	_, _, w, _ := t.give(1)
	for _, every := range []time.Duration{200 * time.Millisecond, 600 * time.Millisecond} {
		m := greeting()
		m.ReportIntervalMs = every.Milliseconds()
		w.status(m)
		// The first may still have been due by the interval before.
		time.Sleep(every)
		w.forget()
		if got := w.interval(8, every); got < every/2 || got > every*5/2 {
			t.fault(fmt.Sprintf("Reports about each %s", every), fmt.Sprintf("each %s", got.Round(time.Millisecond)))
		}
	}
}

func checkReportSequence(t *T) {
	s, _, w, a := t.give(1)
	m := greeting()
	m.ReportIntervalMs = 150
	w.status(m)
	last := w.hello().GetReport().GetSequence()
	for n := range 8 {
		s.do(line.Request{Op: "handle", Key: keyOf(a[0], me, n), N: 10 * n})
		r := w.report(t.patience, func(report) bool { return true })
		if r == nil {
			t.fault("a Report each 150ms", fmt.Sprintf("none within %s", t.patience))
		}
		if r.GetSequence() <= last {
			t.fault(fmt.Sprintf("a Report with a sequence above %d", last), fmt.Sprintf("sequence %d", r.GetSequence()))
		}
		last = r.GetSequence()
		if age := r.GetAgeMs(); age < 0 || age > t.patience.Milliseconds() {
			t.fault("a Report that was made just now, whose age_ms is how long it waited", fmt.Sprintf("age_ms %d", age))
		}
		if r.GetState() != slicerv1.TaskState_TASK_STATE_RUNNING {
			t.fault("a Report of state RUNNING", r.GetState().String())
		}
		if l := r.GetLoad(); l != nil {
			if err := wire.CheckLoad(l); err != nil {
				t.fault("a load report within its bounds", err.Error())
			}
		}
	}
}

// nearly is how far what is reported of load may be from what was handled: windows end at
// moments of the slicelet's, and rates are rounded.
const nearly = .15

// reported adds up what a row of reports says: requests a range, in all, and misrouted.
type reported struct {
	ranges           map[assignment.Slice]float64
	total, misrouted float64
}

// loads reads n reports with load, which have to be about generation a and its slices.
func (w *watch) loads(n int, a *assignment.Assignment) reported {
	t := w.s.t
	mine := make(map[assignment.Slice]bool)
	for s, r := range a.All() {
		for task := range r.All() {
			mine[s] = mine[s] || task.Name == me
		}
	}
	sum := reported{ranges: make(map[assignment.Slice]float64)}
	for range n {
		r := w.report(t.patience, func(r report) bool { return r.GetLoad() != nil })
		if r == nil {
			t.fault("a Report with load", fmt.Sprintf("none within %s", t.patience))
		}
		l, err := wire.LoadFromProto(r.GetLoad())
		if err != nil {
			t.fault("a load report within its bounds", err.Error())
		}
		if l.Generation != a.Generation() {
			t.fault(fmt.Sprintf("load by the slices of generation %d, which is in use", a.Generation()), fmt.Sprintf("generation %d", l.Generation))
		}
		secs := l.Window.Seconds()
		for i, s := range l.Ranges {
			if !mine[s] {
				t.fault("ranges that are slices of the task", s.String())
			}
			sum.ranges[s] += l.Rate[i] * secs
		}
		sum.total += l.Total * secs
		sum.misrouted += l.Misrouted * secs
	}
	return sum
}

// metered has a task with four slices report each 400 ms, and waits until it has for two windows.
func (t *T) metered() (*session, *watch, *assignment.Assignment) {
	s, _, w := t.begin()
	m := greeting()
	m.ReportIntervalMs = 400
	a := storyOf(w).assign(nil, slicesOf(8, func(i int) []uint32 { return []uint32{uint32(i%2) * 1} }))
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	w.status(m)
	w.loads(0, a)
	for range 2 { // of a window that began before the assignment came
		w.report(t.patience, func(r report) bool { return r.GetLoad() != nil })
	}
	w.forget()
	return s, w, a
}

func checkLoad(t *T) {
	s, w, a := t.metered()
	counts := map[string]int{keyOf(a, me, 0): 600, keyOf(a, me, 5): 300}
	want := make(map[assignment.Slice]float64)
	for key, n := range counts {
		s.do(line.Request{Op: "handle", Key: key, N: n})
		want[a.Slice(a.Find(assignment.KeyOf(key)))] += float64(n)
	}
	got := w.loads(4, a)
	for slice, n := range want {
		if math.Abs(got.ranges[slice]-n) > nearly*n {
			t.fault(fmt.Sprintf("rates of %s that, times their windows, are the %.0f requests handled", slice, n), fmt.Sprintf("%.0f", got.ranges[slice]))
		}
	}
	if math.Abs(got.total-900) > nearly*900 {
		t.fault("a total_rate that, times its windows, is the 900 requests handled", fmt.Sprintf("%.0f", got.total))
	}
	if len(got.ranges) != 4 {
		t.fault("rates of all 4 slices of the task", fmt.Sprintf("of %d", len(got.ranges)))
	}
	if got.misrouted > 1 {
		t.fault("a misrouted_rate of 0, as all keys were the task's", fmt.Sprintf("%.0f requests", got.misrouted))
	}
}

func checkMisrouted(t *T) {
	s, w, a := t.metered()
	s.do(line.Request{Op: "handle", Key: keyOf(a, "task-a", 0), N: 400})
	got := w.loads(4, a)
	if math.Abs(got.misrouted-400) > nearly*400 {
		t.fault("a misrouted_rate that, times its windows, is the 400 requests for a key of another task", fmt.Sprintf("%.0f", got.misrouted))
	}
	if got.total < got.misrouted*(1-nearly) {
		t.fault("a total_rate with the misrouted requests in it", fmt.Sprintf("%.0f requests of %.0f", got.total, got.misrouted))
	}
}

func isDraining(r report) bool { return r.GetState() == slicerv1.TaskState_TASK_STATE_DRAINING }

func checkDrain(t *T) {
	s, d, w, all := t.give(2)
	s.do(line.Request{Op: "drain"})
	if w.report(t.patience, isDraining) == nil {
		t.fault(fmt.Sprintf("a Report of state DRAINING at once, though report_interval_ms is %d", greeting().ReportIntervalMs), fmt.Sprintf("none within %s", t.patience))
	}
	s.wantView(all[0], "while the task drains and has its slices")
	w.finish(errEnds)
	w = d.accept()
	if got := w.hello().GetReport().GetState(); got != slicerv1.TaskState_TASK_STATE_DRAINING {
		t.fault("a Hello whose report is of state DRAINING", got.String())
	}
	w.status(greeting())
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a delta while the task drains")
}

func checkDrained(t *T) {
	s, _, w, all := t.give(1)
	s.do(line.Request{Op: "drain"})
	w.report(t.patience, isDraining)
	drained := func() bool { return s.do(line.Request{Op: "state"}).Drained }
	not := func(when string) {
		for end := time.Now().Add(900 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if drained() {
				t.fault("a drain that goes on "+when, "its end")
			}
		}
	}
	not("while the task has slices")
	st := storyOf(w)
	st.state = assignment.TaskDraining
	a := st.assign(all[0], slicesOf(8, func(i int) []uint32 { return []uint32{uint32(i%2) * 2} }))
	w.put(a)
	w.wantTaken(a, "an assignment in which the task has no slices")
	m := greeting()
	m.ConvergedGeneration, m.Stragglers = int64(all[0].Generation()), []string{"clerk client-1"}
	w.status(m)
	not("while some client is not known to hold the assignment")
	m = greeting()
	m.ConvergedGeneration = int64(a.Generation())
	w.status(m)
	t.eventually("the end of the drain, as all is moved and known", func() (bool, string) { return drained(), "it goes on" })
}

func checkStarting(t *T) {
	d := t.server("A")
	s := t.run()
	s.do(line.Request{Op: "start", Job: job, Task: me, Address: myAddress, Zone: zone, Distributors: addrs([]*server{d}), Starting: true})
	w := d.accept()
	w.status(greeting())
	if got := w.hello().GetReport().GetState(); got != slicerv1.TaskState_TASK_STATE_STARTING {
		t.fault("a Hello whose report is of state STARTING", got.String())
	}
	s.do(line.Request{Op: "started"})
	if w.report(t.patience, func(r report) bool { return r.GetState() == slicerv1.TaskState_TASK_STATE_RUNNING }) == nil {
		t.fault("a Report of state RUNNING at once", fmt.Sprintf("none within %s", t.patience))
	}
}

func checkChanges(t *T) {
	s, _, w, all := t.give(3)
	var held, told []assignment.Slice
	for i, a := range all {
		if i > 0 {
			w.delta(all[i-1], a)
			w.wantTaken(a, "a delta")
		}
		held = nil
		for slice, r := range a.All() {
			if r.At(0).Name == me {
				held = append(held, slice)
			}
		}
		// What listeners know is what they were told of, in whatever pieces.
		t.eventually(fmt.Sprintf("listeners told of the ranges %v, which are the task's by generation %d", held, a.Generation()), func() (bool, string) {
			for _, c := range s.do(line.Request{Op: "changes"}).Changes {
				told = subtract(told, t.ranges(c.Departed))
				told = merge(told, t.ranges(c.Arrived))
			}
			return same(told, held), fmt.Sprint(told)
		})
	}
}

func (t *T) ranges(pairs [][2]string) (out []assignment.Slice) {
	for _, p := range pairs {
		start, err := assignment.ParseSliceKey(p[0])
		end, err2 := assignment.ParseSliceKey(p[1])
		if err != nil || err2 != nil || start >= end {
			t.faultAt(refDriver, "a range of slice keys, in 16 hexadecimal digits each", fmt.Sprint(p))
		}
		out = append(out, assignment.Slice{Start: start, End: end})
	}
	return out
}

// unheard is a status of a Distributor that the preferred assigner does not hear.
func unheard() *slicerv1.Status {
	m := greeting()
	m.Unacknowledged = true
	return m
}

func checkUnacknowledged(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	s := t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	w.status(greeting())
	a := storyOf(w).chain(1)[0]
	w.put(a)
	w.wantTaken(a, "a whole assignment")
	w.status(unheard())
	other := servers[1-at]
	for deadline := time.Now().Add(t.patience); ; {
		next := other.next(time.Until(deadline))
		if next == nil {
			t.fault(fmt.Sprintf("a stream as a slicelet at %s, which is heard, within %s", other.name, t.patience), "none")
		}
		next.status(greeting())
		if next.hello().GetRole() == slicerv1.Role_ROLE_SLICELET {
			break
		}
		// It asks first, as an observer.
	}
	if !w.gone(t.patience) {
		t.fault("the end of the stream to the Distributor that is not heard", "it lasts")
	}
	s.wantView(a, "after the slicelet has moved")
}

func checkUnacknowledgedStays(t *T) {
	servers := []*server{t.server("A"), t.server("B")}
	s := t.start(startConfig{distributors: servers})
	w, at := t.acceptAny(servers...)
	w.status(greeting())
	all := storyOf(w).chain(2)
	w.put(all[0])
	w.wantTaken(all[0], "a whole assignment")
	w.status(unheard())
	for deadline := time.Now().Add(2500 * time.Millisecond); time.Now().Before(deadline); {
		if next := servers[1-at].next(100 * time.Millisecond); next != nil {
			next.status(unheard())
			if next.hello().GetRole() == slicerv1.Role_ROLE_SLICELET {
				t.fault("a slicelet that stays, or asks as an observer, as the other Distributor is not heard either", "a stream as a slicelet there")
			}
		}
	}
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a delta of the Distributor where it stays")
	s.comesToView(all[1], "after it has stayed")
}
