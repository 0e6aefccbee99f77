package fanout

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// MaxBatch is the size above which no further report goes into one TaskReports,
// bytes. With a largest report on top it stays below gRPC's usual limit of 4 MiB.
const MaxBatch = 1 << 20

// reports merges what the slicelets of one job report: the newest of each task,
// until the preferred assigner takes it.
type reports struct {
	tasks map[string]*reported
	order []*reported // all of tasks, by name
	// count numbers what was reported: what tasks say of themselves counts for nothing
	// here, since a stranger may say the same in a later stream.
	count uint64
	// gone are those whose stream has ended since; the assigner is to be told.
	gone map[process]*reported
}

// process is one incarnation of a task.
type process struct {
	name        string
	incarnation uint64
}

// foreign reports whether another identity than the task's own has come with its name.
func (t *reported) foreign(identity string) bool {
	return t.identity != "" && identity != "" && t.identity != identity
}

func processOf(t *slicerv1.Task) process { return process{t.GetName(), t.GetIncarnation()} }

func (p process) compare(q process) int {
	return cmp.Or(cmp.Compare(p.name, q.name), cmp.Compare(p.incarnation, q.incarnation))
}

// reported is the newest that is known of a task.
type reported struct {
	by       uint64 // subscriber that speaks for the task
	identity string // of that subscriber's certificate, "" if rights are not asked for
	task     *slicerv1.Task
	report   *slicerv1.Report
	number   uint64    // by which it goes to the assigner
	at       time.Time // when it came
	changed  bool      // something has not been taken yet
	// measured says that the task has reported load since it connected.
	measured bool
}

// newReports begins those of the nth job of a Distributor.
func newReports(nth uint64) reports {
	return reports{count: nth << 32, tasks: make(map[string]*reported), gone: make(map[process]*reported)}
}

// holder returns what is known of the task of that name, and whether there is one.
func (r *reports) holder(name string) (*reported, bool) {
	t, ok := r.tasks[name]
	return t, ok
}

// connect enters a task. A subscriber that reported for one of that name before does so
// no longer.
func (r *reports) connect(now time.Time, by uint64, identity string, task *slicerv1.Task, report *slicerv1.Report) *reported {
	t := &reported{by: by, identity: identity, task: task}
	r.tasks[task.GetName()] = t
	if i, was := r.find(task.GetName()); was {
		r.order[i] = t
	} else {
		r.order = slices.Insert(r.order, i, t)
	}
	delete(r.gone, processOf(task))
	t.take(now, r.next(), report)
	return t
}

// report takes a task's newest report, and reports whether the task's state changes, of
// which the assigner is told at once. It returns nil if another speaks for the task.
func (r *reports) report(now time.Time, by uint64, name string, report *slicerv1.Report) (t *reported, changed bool) {
	t = r.tasks[name]
	if t == nil || t.by != by {
		return nil, false
	}
	return t, t.take(now, r.next(), report)
}

func (r *reports) next() uint64 {
	r.count++
	return r.count
}

func (t *reported) take(now time.Time, number uint64, report *slicerv1.Report) (changed bool) {
	t.report, t.number, t.at, t.changed = report, number, now, true
	t.measured = t.measured || report.GetLoad().GetTotalRate() > 0
	s := report.GetState()
	if s == slicerv1.TaskState_TASK_STATE_UNSPECIFIED || s == t.task.GetState() {
		return false
	}
	// The task may be on its way to an assigner: it is replaced, not changed.
	t.task = proto.CloneOf(t.task)
	t.task.State = s
	return true
}

// disconnect forgets a task when the stream that speaks for it ends, and says
// whether it did. With remember the assigner is told of the end.
func (r *reports) disconnect(by uint64, name string, remember bool) bool {
	t := r.tasks[name]
	if t == nil || t.by != by {
		return false
	}
	delete(r.tasks, name)
	i, _ := r.find(name)
	r.order = slices.Delete(r.order, i, i+1)
	if remember {
		r.gone[processOf(t.task)] = t
	}
	return true
}

// find is where a task stands in order, or is to be put.
func (r *reports) find(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(r.order, name, func(t *reported, name string) int { return cmp.Compare(t.task.GetName(), name) })
}

// unmeasured reports whether there are tasks and none has reported load.
func (r *reports) unmeasured() bool {
	return len(r.order) > 0 && !slices.ContainsFunc(r.order, func(t *reported) bool { return t.measured })
}

// fillIn gives tasks that have changed and measure nothing themselves the load that estimate
// returns, unless that is nil. cpu is what the task reports of itself, a fraction.
func (r *reports) fillIn(estimate func(task string, cpu float64) *slicerv1.LoadReport) {
	for _, t := range r.order {
		if !t.changed || t.measured {
			continue
		}
		if l := estimate(t.task.GetName(), float64(t.report.GetLoad().GetCpuUtilization())); l != nil {
			t.report = proto.CloneOf(t.report)
			t.report.Load = l
		}
	}
}

// overflowing says that more disconnections wait than are worth telling one by
// one: a complete snapshot says the same.
func (r *reports) overflowing() bool { return len(r.gone) > 1024+len(r.tasks) }

// take returns what has changed, or with complete all that is connected, in order of
// name, and forgets what has changed. Only the first message of a complete answer is
// marked complete and names every task; reports that do not fit follow.
func (r *reports) take(now time.Time, job string, complete bool) []*slicerv1.TaskReports {
	n := 0 // of which something has changed
	for _, t := range r.order {
		if t.changed = t.changed || complete; t.changed {
			n++
		}
	}
	if complete {
		clear(r.gone)
	}
	first := &slicerv1.TaskReports{Job: job, Complete: complete, Reports: make([]*slicerv1.TaskReport, 0, len(r.gone)+n)}
	if len(r.gone) > 0 {
		for _, p := range slices.SortedFunc(maps.Keys(r.gone), process.compare) {
			t := r.gone[p]
			first.Reports = append(first.Reports, &slicerv1.TaskReport{Task: t.task, Report: t.age(new(slicerv1.Report), now), Disconnected: true, Identity: t.identity})
		}
	}
	b := batcher{job: job, out: []*slicerv1.TaskReports{first}}
	for _, tr := range first.Reports {
		// A task that is gone owns no load any more.
		tr.Report.Load = nil
		b.size += atMost(tr)
	}
	all := make([]struct {
		of slicerv1.TaskReport
		is slicerv1.Report
	}, n)
	for _, t := range r.order {
		if !t.changed {
			continue
		}
		t.changed = false
		x := &all[0]
		all = all[1:]
		t.age(&x.is, now)
		x.of.Task, x.of.Report, x.of.Identity = t.task, &x.is, t.identity
		b.add(&x.of, complete)
	}
	clear(r.gone)
	return b.finish()
}

// age makes r the report as it is sent on: older by the time that it has waited here.
func (t *reported) age(r *slicerv1.Report, now time.Time) *slicerv1.Report {
	r.Sequence, r.State, r.Load = t.number, t.report.GetState(), t.report.GetLoad()
	r.Level, r.PauseMs = t.report.GetLevel(), t.report.GetPauseMs()
	r.AgeMs = t.report.GetAgeMs() + max(now.Sub(t.at), 0).Milliseconds()
	return r
}

// batcher cuts task reports into messages of bounded size.
type batcher struct {
	job   string
	out   []*slicerv1.TaskReports // the last one is being filled
	size  int
	later []*slicerv1.TaskReport // do not fit beside the names in a complete message
}

func (b *batcher) add(tr *slicerv1.TaskReport, complete bool) {
	n := atMost(tr)
	last := b.out[len(b.out)-1]
	switch {
	case b.size == 0 || b.size+n <= MaxBatch:
		b.size += n
	case complete:
		b.later = append(b.later, tr)
		tr = &slicerv1.TaskReport{Task: tr.Task, Identity: tr.Identity}
	default:
		last = &slicerv1.TaskReports{Job: b.job}
		b.out, b.size = append(b.out, last), n
	}
	last.Reports = append(last.Reports, tr)
}

// atMost is what a task report may take, bytes: at least its size, and cheaper.
func atMost(tr *slicerv1.TaskReport) int {
	t := tr.GetTask()
	return fixed + len(t.GetName()) + len(t.GetAddress()) + len(t.GetZone()) + len(tr.GetIdentity()) + varying(tr.GetReport())
}

// ReportSize is what a report may take, bytes: at least its size, and cheaper.
func ReportSize(r *slicerv1.Report) int {
	n := fixed + varying(r)
	if c := r.GetCustomers(); c != nil {
		n += 8*len(c.Customer) + 4*(len(c.Asked)+len(c.Used)) + len(c.ProtoReflect().GetUnknown())
		for _, name := range c.Name {
			n += binary.MaxVarintLen64 + len(name)
		}
	}
	return n
}

// fixed is more than all takes that is of a fixed size in a task report, and tags.
const fixed = 256

// varying is what the rest of a report may take.
func varying(r *slicerv1.Report) (n int) {
	if r != nil {
		n = len(r.ProtoReflect().GetUnknown())
	}
	if l := r.GetLoad(); l != nil {
		n += binary.MaxVarintLen64*(len(l.RangeSkip)+len(l.RangeWidth)+len(l.HotKey)) +
			4*(len(l.Rate)+len(l.PartRate)+len(l.HotRate)+len(l.HotError)) + len(l.ProtoReflect().GetUnknown())
	}
	return n
}

func (b *batcher) finish() []*slicerv1.TaskReports {
	if later := b.later; len(later) > 0 {
		b.later = nil
		b.out, b.size = append(b.out, &slicerv1.TaskReports{Job: b.job}), 0
		for _, tr := range later {
			b.add(tr, false)
		}
	}
	return b.out
}
