package downstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The files of testdata are transcripts: what happens to one job of an assigner, and below
// each event the actions that follow, and what Distributors are told. `go test
// ./assigner/downstream -run TestTranscripts -rewrite` writes them anew. A line is "event
// arguments"; the arguments are
//
//	store [none] [config]               the store has the job, or none, or another config of it
//	preferred id=a1                     which assigner decides; a1 is this one
//	attach d=d1, detach d=d1
//	want d=d1 [g=1] [newest=1s] [stop]  d1 holds generation 1, and a slicelet of it one that
//	     [compressed]                   is so much newer than the newest; d1 reads compressed wholes
//	reports d=d1 [complete] t1 t2=2 -t3 tasks run, of incarnation 1 or that one; t3 has gone
//	drains d=d1 t1, full d=d1 t1        reports of tasks that drain, or refuse
//	malformed d=d1                      a report that makes no sense
//	acks d=d1 clerks=2 [g=1] [late=c1]  all hold generation 1 at least
//	clients d=d1 [complete] c1 c2=7 -c3 clerks that are connected, or hold an index; c3 has gone
//	want-base d=d1 [g=1] [compressed]
//	base d=d1 [g=1] [none] [compressed] what was read from the store
//	views d=d1 job=a1                   which assigner d1 takes for preferred
//	run [for=1s] [full=d1]              time passes
//
// In a run streams have room at all times, but for one that is full; the job is ticked when
// it is due, and what its core asks for is done: the store takes every write. Outside of it
// nothing is sent. Lines begin with the time since the run began. Generations are counted
// from 1 as they are stored. "turned" is for those that wait for a change: the assignment or
// the preferred assigner is another one.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		x := &transcript{now: generate.Now{Mono: time.Minute, Wall: time.UnixMilli(1_700_000_000_000)}, ends: map[string]*end{}}
		x.job = NewJob(generate.Config{ID: "a1"}, "job", x.now, func(e Encode) Encode { return e })
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			x.t = t
			return x.do(d)
		})
	})
}

// transcript drives one job.
type transcript struct {
	t      *testing.T
	out    strings.Builder
	now    generate.Now
	began  time.Duration // of the run, 0 outside
	job    *Job
	ends   map[string]*end // attached, by name
	order  []*end
	nth    Session
	config store.Job // version 0: there is no such job
	stored []*assignment.Assignment
	seq    uint64
}

// end is the assigner's end of a Distributor's stream.
type end struct {
	*Stream
	Reader
	heard time.Duration
}

func (x *transcript) do(d *datadriven.TestData) string {
	x.out.Reset()
	var name string
	d.MaybeScanArgs(x.t, "d", &name)
	e := x.ends[name]
	switch d.Cmd {
	case "store":
		// Without warm-up a task that joins is given its part in several rounds, each a generation.
		x.config.Config = assignment.JobConfig{Name: "job", WarmUp: assignment.NoWarmUp}.WithDefaults()
		if x.config.Version++; d.HasArg("none") {
			x.config.Version = 0
		} else if d.HasArg("config") {
			x.config.Config.HeartbeatTimeout = 3 * time.Second
		}
		if d.HasArg("mail") {
			var rate int
			d.ScanArgs(x.t, "mail", &rate)
			x.config.Config.Limits, _ = assignment.LimitsOf(assignment.Limit{Rate: 10}, map[string]assignment.Limit{"mail": {Rate: float64(rate)}})
		}
		x.step(func(c *generate.Core, now generate.Now) { c.StoreChanged(now) })
	case "preferred":
		var id string
		d.ScanArgs(x.t, "id", &id)
		x.step(func(c *generate.Core, now generate.Now) { c.Preferred(now, id) })
	case "attach":
		if err := CheckHello(&slicerv1.DistributorHello{DistributorId: name}); err != nil {
			return err.Error() + "\n"
		}
		x.nth++
		e = &end{NewStream("a1", ""), Reader{From: x.nth, Name: name}, x.now.Mono}
		x.ends[name], x.order = e, append(x.order, e)
		x.step(Attached{From: e.From, Name: name})
	case "detach":
		x.order = slices.DeleteFunc(x.order, func(o *end) bool { return o == e })
		x.step(Detached{From: e.From})
	case "base":
		b := BaseRead{Of: ReadBase{e.From, x.held(d), d.HasArg("compressed")}}
		if !d.HasArg("none") {
			b.Assignment = x.stored[slices.IndexFunc(x.stored, b.Of.Held.fits)]
		}
		x.step(b)
	case "run":
		var length string
		d.MaybeScanArgs(x.t, "for", &length)
		l, _ := time.ParseDuration(length)
		var full string
		d.MaybeScanArgs(x.t, "full", &full)
		x.run(l, full)
	default:
		x.hear(e, x.message(d))
	}
	return x.out.String()
}

// held is the generation that an event names, the zero Mark if none.
func (x *transcript) held(d *datadriven.TestData) Mark {
	var g int
	if d.MaybeScanArgs(x.t, "g", &g); g == 0 {
		return Mark{}
	}
	return markOf(x.stored[g-1])
}

// message is what a Distributor says.
func (x *transcript) message(d *datadriven.TestData) *slicerv1.AttachRequest {
	held := x.held(d)
	// each is called with the arguments that name tasks or clients.
	each := func(f func(name string, n int, gone bool)) {
		for _, a := range d.CmdArgs {
			if a.Key != "d" && a.Key != "complete" && a.Key != "bad" && a.Key != "asks" {
				n := -1
				if len(a.Vals) > 0 {
					n, _ = strconv.Atoi(a.Vals[0])
				}
				name, gone := strings.CutPrefix(a.Key, "-")
				f(name, n, gone)
			}
		}
	}
	switch d.Cmd {
	case "want":
		w := &slicerv1.Want{Job: "job", Generation: int64(held.Generation), StoreId: held.Store, Checksum: held.Sum, Stop: d.HasArg("stop"), Compressed: d.HasArg("compressed")}
		if d.HasArg("newest") {
			var by string
			d.ScanArgs(x.t, "newest", &by)
			ahead, _ := time.ParseDuration(by)
			newest := x.stored[len(x.stored)-1]
			w.NewestReported, w.NewestReportedStoreId = int64(newest.Generation())+ahead.Milliseconds(), newest.StoreID()
		}
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Want{Want: w}}
	case "want-base":
		w := &slicerv1.WantBase{Job: "job", Generation: int64(held.Generation), StoreId: held.Store, Checksum: held.Sum, Compressed: d.HasArg("compressed")}
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_WantBase{WantBase: w}}
	case "malformed":
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: &slicerv1.TaskReports{Job: "job", Reports: []*slicerv1.TaskReport{{Task: task("bad name", 1)}}}}}
	case "reports", "drains", "full":
		m := &slicerv1.TaskReports{Job: "job", Complete: d.HasArg("complete")}
		each(func(name string, n int, gone bool) {
			x.seq++
			r := &slicerv1.TaskReport{Task: task(name, uint64(max(n, 1))), Disconnected: gone}
			if !gone {
				r.Report = &slicerv1.Report{Sequence: x.seq, State: r.Task.State}
				switch d.Cmd {
				case "drains":
					r.Report.State = slicerv1.TaskState_TASK_STATE_DRAINING
				case "full":
					r.Report.Level = 300
				}
			}
			m.Reports = append(m.Reports, r)
		})
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Reports{Reports: m}}
	case "uses":
		m := &slicerv1.CustomerUse{}
		var ids []uint64
		of := map[uint64]float32{}
		each(func(name string, n int, _ bool) {
			id := assignment.CustomerID(name)
			ids, of[id], m.Name = append(ids, id), float32(n), append(m.Name, name)
		})
		slices.Sort(ids)
		if d.HasArg("bad") {
			slices.Reverse(ids)
		}
		for _, id := range ids {
			m.Customer, m.Asked, m.Used = append(m.Customer, id), append(m.Asked, of[id]), append(m.Used, of[id])
		}
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_CustomerUses{CustomerUses: &slicerv1.CustomerUses{Job: "job", Use: m, Capacity: 2, Asks: d.HasArg("asks")}}}
	case "acks":
		m := &slicerv1.Acks{Job: "job", MinGeneration: int64(held.Generation)}
		d.MaybeScanArgs(x.t, "clerks", &m.Clerks)
		if d.HasArg("late") {
			m.Stragglers = make([]string, 1)
			d.ScanArgs(x.t, "late", &m.Stragglers[0])
		}
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Acks{Acks: m}}
	case "clients":
		m := &slicerv1.Clients{Job: "job", Complete: d.HasArg("complete")}
		each(func(name string, n int, gone bool) {
			c := &slicerv1.Client{ClientId: name, Disconnected: gone}
			if n >= 0 {
				index := uint32(n)
				c.Index = &index
			}
			m.Clients = append(m.Clients, c)
		})
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Clients{Clients: m}}
	case "views":
		m := &slicerv1.PreferenceView{First: true}
		for _, a := range d.CmdArgs[1:] {
			m.Jobs = append(m.Jobs, &slicerv1.PreferredAssigner{Job: a.Key, AssignerId: a.Vals[0]})
		}
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_PreferenceView{PreferenceView: m}}
	}
	d.Fatalf(x.t, "there is no event %q", d.Cmd)
	return nil
}

func (x *transcript) say(format string, args ...any) {
	if x.began > 0 {
		fmt.Fprintf(&x.out, "%-8s", fmt.Sprintf("%dms", (x.now.Mono-x.began).Milliseconds()))
	}
	fmt.Fprintf(&x.out, format+"\n", args...)
}

// hear takes in what a Distributor says.
func (x *transcript) hear(e *end, m *slicerv1.AttachRequest) {
	e.heard = x.now.Mono
	job, err := e.Received(x.now.Mono, m)
	if err != nil {
		x.say("ignored: %v", err)
	}
	if job == "" {
		return
	}
	said, bad := e.Read(x.now.Mono, m)
	for _, b := range bad {
		x.say("ignored, of %s: %v", b.Task, b.Err)
	}
	x.step(said)
}

// step prints what follows from an event, and returns what was asked for.
func (x *transcript) step(e Event) (answer Action) {
	for _, a := range x.job.Step(x.now, e) {
		switch a := a.(type) {
		case Notify:
			x.end(a.To).Mark("job")
		case Drop:
			x.say("drop %s", x.end(a.From).Name)
			x.end(a.From).Drop("job")
		case Refuse:
			x.end(a.To).Refuse(a.Message)
		case Prefer:
			x.say("work out which assigner is preferred")
		case Turned:
			if x.say("turned"); a.Mine {
				x.say("this assigner decides")
			}
		case ReadBase:
			x.say("read %s for %s", x.generation(int64(a.Held.Generation)), x.end(a.For).Name)
		case generate.Outputs:
		default:
			answer = a
		}
	}
	return answer
}

func (x *transcript) end(s Session) *end {
	at := slices.IndexFunc(x.order, func(e *end) bool { return e.From == s })
	return x.order[at]
}

// run carries out all actions until a time.
func (x *transcript) run(d time.Duration, full string) {
	x.began = x.now.Mono
	defer func() { x.began = 0 }()
	for until := x.now.Mono + d; ; {
		wait := x.work()
		for _, e := range x.order {
			if e.Name != full {
				x.send(e)
			}
		}
		if x.now.Mono == until {
			return
		}
		wait = min(wait, until-x.now.Mono)
		x.now = generate.Now{Mono: x.now.Mono + wait, Wall: x.now.Wall.Add(wait)}
	}
}

// work does what the core asks for, and returns how long it has nothing to do.
func (x *transcript) work() time.Duration {
	heard := func(yield func(Session, time.Duration) bool) {
		for _, e := range x.order {
			yield(e.From, e.heard)
		}
	}
	for {
		do := x.step(Tick{Heard: heard}).(Do)
		switch a := do.Action.(type) {
		case generate.Load:
			l := generate.Loaded{Exists: x.config.Version > 0, Job: x.config, StoreID: 7}
			if n := len(x.stored); n > 0 && l.Exists {
				l.Assignment = x.stored[n-1]
			}
			x.step(func(c *generate.Core, now generate.Now) { c.Loaded(now, l) })
		case *generate.Plan:
			p := a.Run()
			x.step(func(c *generate.Core, now generate.Now) { c.Planned(now, p) })
		case generate.Write:
			x.stored = append(x.stored, a.Next)
			x.say("stored g%d", len(x.stored))
			x.step(func(c *generate.Core, now generate.Now) { c.Written(now, nil) })
		case nil:
			return do.Wait
		default:
			x.t.Fatalf("the core asks for %T", a)
		}
	}
}

// send sends to a Distributor what there is.
func (x *transcript) send(e *end) {
	for m, job, ok := e.Pop(); ok; m, job, ok = e.Pop() {
		if m != nil {
			x.say("to %s: %s", e.Name, x.told(m))
			continue
		}
		if job != "job" {
			x.t.Fatalf("it is job %q", job)
		}
		for {
			say, ok := x.step(Ready{To: e.From}).(Say)
			if !ok {
				break
			}
			f, err := say.Frame()
			if err != nil {
				x.t.Fatal(err)
			}
			for m := range say.Messages(f, func() time.Duration { return x.now.Mono }) {
				if what := x.told(m); what != "" {
					x.say("to %s: %s", e.Name, what)
				}
			}
		}
	}
}

// generation is one as transcripts call it: counted from the first.
func (x *transcript) generation(g int64) string {
	return "g" + strconv.Itoa(1+slices.IndexFunc(x.stored, func(a *assignment.Assignment) bool { return int64(a.Generation()) == g }))
}

// told is what a Distributor is told, "" for a piece that is not the last.
func (x *transcript) told(m *slicerv1.AttachResponse) string {
	switch m := m.GetMessage().(type) {
	case *slicerv1.AttachResponse_Hello:
		return "hello of " + m.Hello.AssignerId
	case *slicerv1.AttachResponse_Acknowledged:
		return "heard"
	case *slicerv1.AttachResponse_Status:
		s := m.Status
		if s.Unknown {
			return "status unknown"
		}
		words := fmt.Sprintf("status heartbeat %dms", s.HeartbeatTimeoutMs)
		if s.ConvergedGeneration > 0 {
			words += ", all hold " + x.generation(s.ConvergedGeneration)
		}
		if len(s.Stragglers) > 0 {
			words += ", late: " + strings.Join(s.Stragglers, " and ")
		}
		for _, c := range s.Conditions {
			what := fmt.Sprintf("refuses below %d", c.Level)
			if c.Draining {
				what = "drains"
			}
			words += fmt.Sprintf(", %s/%d %s", c.Task, c.Incarnation, what)
		}
		if s.Limited {
			words += ", limited"
		}
		if s.Distributors > 0 {
			words += fmt.Sprintf(", %d Distributors with %d subscribers each", s.Distributors, s.MeanSubscribers)
		}
		return words
	case *slicerv1.AttachResponse_Quotas:
		return quotasToText(m.Quotas.GetQuotas())
	case *slicerv1.AttachResponse_Assignment:
		t := m.Assignment.GetTrailer()
		if t == nil {
			return ""
		}
		age := fmt.Sprintf(", %dms old", m.Assignment.AgeUs/1000)
		if t.Base > 0 {
			return fmt.Sprintf("delta %s -> %s", x.generation(t.Base), x.generation(t.Generation)) + age
		}
		return x.generation(t.Generation) + ", whole" + packed(t) + age
	case *slicerv1.AttachResponse_Base:
		if m.Base.GetChunk() != nil {
			return ""
		}
		if t := m.Base.GetTrailer(); t != nil {
			return x.generation(t.Generation) + " as a base" + packed(t)
		}
		return "no base"
	case *slicerv1.AttachResponse_ClientIndexes:
		words := "indexes"
		for _, c := range m.ClientIndexes.Indexes {
			words += fmt.Sprintf(" %s=%d", c.ClientId, c.Index)
		}
		return words
	case *slicerv1.AttachResponse_RefuseTask:
		r := m.RefuseTask
		return fmt.Sprintf("refuse %s/%d, %s: %s", r.Task, r.Incarnation, codes.Code(r.Code), r.Message)
	}
	return fmt.Sprint(m)
}

// packed says that a whole is compressed.
func packed(t *slicerv1.Trailer) string {
	if t.WholeSize != 0 {
		return ", compressed"
	}
	return ""
}

// quotasToText names the customers that tests have.
func quotasToText(q *slicerv1.Quotas) string {
	var words []string
	if l := q.Limits; l != nil {
		words = append(words, fmt.Sprintf("others are limited to %g", l.GetOthers().GetRate()))
		for _, c := range l.Customers {
			words = append(words, fmt.Sprintf("%s to %g", c.Customer, c.Rate))
		}
	}
	for i, id := range q.Customer {
		for _, name := range []string{"mail", "batch"} {
			if id == assignment.CustomerID(name) {
				words = append(words, fmt.Sprintf("%s may use %.3g", name, q.Share[i]))
			}
		}
	}
	return "quotas: " + strings.Join(words, ", ")
}
