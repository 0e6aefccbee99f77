package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/internal/jobtest"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The files of testdata are transcripts: what happens to one job, and below each event the
// actions that follow. `go test ./distributor/fanout -run TestTranscripts -rewrite` writes
// the actions anew. A line is "event arguments"; the arguments are
//
//	peers [preferred=a1] [asked=a1] [store=1]            which assigners there are
//	asks [waited]                                        for the job's rights
//	answer from=a1 [unknown] [watch=b | watch=!] [heartbeat=2s] [converged=2] [distributors=2 mean=10] [drains=t9] [full=t8]
//	assignment from=a1 g=2 [store=1] [age=5ms]           generation 2 has come
//	base from=a1 [g=1]                                   one that was asked for, or none
//	undecodable from=a1                                  one came that does not decode
//	indexes from=a1 c1=7                                 indexes for clerks
//	refuse-task from=a1 task=t1 incarnation=1
//	clerk n=1 id=c1 [g=1] [index=7] [compressed]                      subscriber 1, which holds g1
//	slicelet n=2 task=t1 [incarnation=1] [g=1] [identity=x]
//	observer n=3
//	report n=2 [state=draining] [level=300]
//	ack n=1 g=2 [refusal=why]
//	left n=1
//	fetch g=1 [compressed] [waited]
//	run [for=1s] [silent]                                time passes
//
// In a run streams have room at all times: subscribers that are woken take what there is,
// peers that are notified are told, and the job is ticked when its timer says so. Lines
// begin with the time since the run began. The preferred assigner says all the while that
// it hears this Distributor, unless the run is silent. What is not shown: a status that
// repeats the last, a reports message without a report, and lines of the log below Warn.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		x := newTranscript(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			x.t = t
			return x.do(d)
		})
	})
}

// transcript drives one job.
type transcript struct {
	t        *testing.T
	out      strings.Builder
	now      time.Time
	began    time.Time // of the run, zero outside
	job      *Job
	labels   map[*prepared.Messages]string
	made     map[Version]*assignment.Assignment
	sessions map[string]Session
	names    map[Session]string
	hears    bool
	shown    map[uint64]string // the last status of each subscriber
	rights   bool              // the job has had some of its own

	due    bool
	at     time.Time // of the timer
	woken  []uint64
	notify []Session
}

func newTranscript(t *testing.T) *transcript {
	x := &transcript{
		t: t, now: epoch, labels: map[*prepared.Messages]string{}, made: map[Version]*assignment.Assignment{},
		sessions: map[string]Session{}, names: map[Session]string{}, shown: map[uint64]string{}, due: true,
	}
	x.job = NewJob(Config{Name: testJob, Distributor: "d1", Encode: x.encode})
	return x
}

func (x *transcript) encode(base, a *assignment.Assignment, compressed bool) *prepared.Messages {
	p := prepared.New(nil)
	x.labels[p] = "g" + gen(int64(a.Generation())) + ", whole"
	if compressed {
		x.labels[p] += ", compressed"
	}
	if base != nil {
		x.labels[p] = fmt.Sprintf("delta g%s -> g%s", gen(int64(base.Generation())), gen(int64(a.Generation())))
	}
	return p
}

// gen is a generation as transcripts call it: counted from the first.
func gen(g int64) string {
	if g == 0 {
		return "0"
	}
	return strconv.FormatInt(g-baseGen, 10)
}

// assignment is generation g of a store; all have the same tasks.
func (x *transcript) assignment(store uint64, g int) *assignment.Assignment {
	v := Version{Store: store, Gen: assignment.Generation(baseGen + g)}
	if x.made[v] == nil {
		x.made[v] = jobtest.First(x.t, testJob, store, v.Gen, 4)
	}
	return x.made[v]
}

func (x *transcript) do(d *datadriven.TestData) string {
	x.out.Reset()
	number := func(key string, usual int) (n int) {
		n = usual
		d.MaybeScanArgs(x.t, key, &n)
		return n
	}
	text := func(key string) (s string) {
		d.MaybeScanArgs(x.t, key, &s)
		return s
	}
	length := func(key string) time.Duration {
		if !d.HasArg(key) {
			return 0
		}
		l, err := time.ParseDuration(text(key))
		if err != nil {
			d.Fatalf(x.t, "%v", err)
		}
		return l
	}
	held := func() (v Version, sum uint64) {
		if !d.HasArg("g") {
			return Version{}, 0
		}
		a := x.assignment(uint64(number("store", 1)), number("g", 0))
		return versionOf(a), a.Checksum()
	}
	n := uint64(number("n", 0))
	switch d.Cmd {
	case "peers":
		x.hears = d.HasArg("preferred")
		x.step(Peers{Preferred: x.peer(text("preferred")), Target: x.peer(text("asked")), Store: uint64(number("store", 0))})
	case "answer":
		m := &slicerv1.JobStatus{
			Job: testJob, Unknown: d.HasArg("unknown"), HeartbeatTimeoutMs: length("heartbeat").Milliseconds(),
			Limited: d.HasArg("limited"), ConvergedGeneration: generation(number("converged", 0)), Distributors: uint32(number("distributors", 0)), MeanSubscribers: uint32(number("mean", 0)),
		}
		if d.HasArg("watch") {
			m.Access = &slicerv1.Access{Watch: strings.Split(text("watch"), ",")}
			x.rights = true
		}
		if d.HasArg("drains") {
			m.Conditions = append(m.Conditions, &slicerv1.TaskCondition{Task: text("drains"), Incarnation: 1, Draining: true})
		}
		if d.HasArg("full") {
			m.Conditions = append(m.Conditions, &slicerv1.TaskCondition{Task: text("full"), Incarnation: 1, Level: 200, PauseMs: 1000})
		}
		x.step(Answered{From: x.peer(text("from")), Status: m})
	case "quotas":
		var limits *assignment.Limits
		if d.HasArg("limit") {
			l, _ := assignment.LimitsOf(assignment.Limit{}, map[string]assignment.Limit{"mail": {Rate: float64(number("limit", 0))}})
			limits = &l
		}
		var shares []assignment.CustomerShare
		if d.HasArg("mail") {
			shares = append(shares, assignment.CustomerShare{Customer: assignment.CustomerID("mail"), Share: float64(number("mail", 0))})
		}
		x.step(Quoted{From: x.peer(text("from")).Session, Quotas: wire.QuotasToProto(shares, limits)})
	case "assignment":
		x.step(Offered{From: x.peer(text("from")), Assignment: x.assignment(uint64(number("store", 1)), number("g", 0)), Age: length("age")})
	case "base":
		e := BaseOffered{From: x.peer(text("from")).Session}
		if d.HasArg("g") {
			e.Assignment = x.assignment(uint64(number("store", 1)), number("g", 0))
		}
		x.step(e)
	case "undecodable":
		x.step(Undecodable{From: x.peer(text("from")).Session})
	case "indexes":
		m := &slicerv1.ClientIndexes{Job: testJob}
		for _, a := range d.CmdArgs {
			if a.Key != "from" {
				i, _ := strconv.Atoi(a.Vals[0])
				m.Indexes = append(m.Indexes, &slicerv1.ClientIndex{ClientId: a.Key, Index: uint32(i)})
			}
		}
		x.step(Indexed{From: x.peer(text("from")).Session, Indexes: m})
	case "refuse-task":
		x.step(TaskRefused{Refusal: &slicerv1.RefuseTask{Job: testJob, Task: text("task"), Incarnation: uint64(number("incarnation", 1)), Code: 9, Message: "another task has its name"}})
	case "clerk":
		v, sum := held()
		x.step(Came{ID: n, Hello: Hello{Job: testJob, Role: slicerv1.Role_ROLE_CLERK, Name: "clerk " + text("id"), Client: text("id"), Index: number("index", -1), Compressed: d.HasArg("compressed"), Held: v, Checksum: sum}})
	case "observer":
		v, sum := held()
		x.step(Came{ID: n, Hello: Hello{Job: testJob, Role: slicerv1.Role_ROLE_OBSERVER, Name: "observer", Index: -1, Held: v, Checksum: sum}})
	case "slicelet":
		v, sum := held()
		task := text("task")
		x.step(Came{ID: n, Identity: text("identity"), Hello: Hello{
			Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, Name: "slicelet " + task, Index: -1, Held: v, Checksum: sum, Report: running(1),
			Task: &slicerv1.Task{Name: task, Incarnation: uint64(number("incarnation", 1)), Address: task + ":80", Weight: 1, State: slicerv1.TaskState_TASK_STATE_RUNNING},
		}})
	case "report":
		state := slicerv1.TaskState_TASK_STATE_RUNNING
		if d.HasArg("state") {
			state = slicerv1.TaskState(slicerv1.TaskState_value["TASK_STATE_"+strings.ToUpper(text("state"))])
		}
		r := &slicerv1.Report{State: state, Level: uint32(number("level", 0))}
		if asked := float64(number("mail", 0)); asked > 0 {
			r.Customers = wire.UseToProto([]assignment.CustomerUse{{Customer: assignment.CustomerID("mail"), Asked: asked, Used: asked / 2}}, []string{"mail"})
		}
		if d.HasArg("bad") {
			r.Customers.Asked = nil
		}
		x.step(Reported{ID: n, Report: r})
	case "ack":
		x.step(Acked{ID: n, Gen: assignment.Generation(generation(number("g", 0))), Refusal: text("refusal")})
	case "left":
		x.step(Left{ID: n})
	case "fetch":
		x.step(Fetched{Gen: assignment.Generation(generation(number("g", 0))), Compressed: d.HasArg("compressed"), Waited: d.HasArg("waited")})
	case "asks":
		x.step(AccessAsked{Waited: d.HasArg("waited")})
	case "run":
		x.run(length("for"), d.HasArg("silent"))
	default:
		d.Fatalf(x.t, "there is no event %q", d.Cmd)
	}
	return x.out.String()
}

func generation(n int) int64 {
	if n == 0 {
		return 0
	}
	return baseGen + int64(n)
}

func (x *transcript) peer(id string) Peer {
	if id == "" {
		return Peer{}
	}
	if x.sessions[id] == 0 {
		x.sessions[id] = Session(len(x.sessions) + 1)
		x.names[x.sessions[id]] = id
	}
	return Peer{Session: x.sessions[id], ID: id}
}

func (x *transcript) say(format string, args ...any) {
	if !x.began.IsZero() {
		fmt.Fprintf(&x.out, "%-8s", fmt.Sprintf("%dms", x.now.Sub(x.began).Milliseconds()))
	}
	fmt.Fprintf(&x.out, format+"\n", args...)
}

// run carries out all actions until a time.
func (x *transcript) run(d time.Duration, silent bool) {
	x.began = x.now
	defer func() { x.began = time.Time{} }()
	for end := x.now.Add(d); ; {
		switch {
		case len(x.woken) > 0:
			id := x.woken[0]
			x.woken = x.woken[1:]
			if x.step(Ready{id}) {
				x.woken = append(x.woken, id)
			}
		case len(x.notify) > 0:
			s := x.notify[0]
			x.notify = x.notify[1:]
			x.step(PeerReady{s})
		case x.due || !x.at.IsZero() && !x.at.After(x.now):
			x.due, x.at = false, time.Time{}
			e := Tick{}
			if x.hears && !silent {
				e.Acknowledged = x.now
			}
			x.step(e)
		case x.at.IsZero() || x.at.After(end):
			x.now = end
			return
		default:
			x.now = x.at
		}
	}
}

// step prints what follows from an event, and reports whether a subscriber is sent
// something.
func (x *transcript) step(e Event) (sent bool) {
	for _, a := range x.job.Step(x.now, e) {
		switch a := a.(type) {
		case Due:
			x.due = true
		case Timer:
			x.at = a.At
		case Wake:
			x.woken = append(x.woken, a.ID)
		case Served:
		case Notify:
			if !slices.Contains(x.notify, a.Session) {
				x.notify = append(x.notify, a.Session)
			}
		case Send:
			sent = true
			content := x.content(a)
			if a.Kind == "" && x.shown[a.ID] == content {
				break
			} else if a.Kind == "" {
				x.shown[a.ID] = content
			}
			x.say("send %d: %s", a.ID, content)
		case End:
			x.say("end %d: %s", a.ID, explain(a.Err))
		case Refuse:
			x.say("refuse %d: %s", a.ID, explain(a.Err))
		case Tell:
			for _, m := range a.Messages {
				if r := m.GetReports(); r != nil && !r.Complete && len(r.Reports) == 0 {
					continue
				}
				x.say("tell %s: %s", x.names[e.(PeerReady).Session], toldOf(m))
			}
		case Judged:
			x.say("%s", a.Verdict)
		case Found:
			if a.Err != nil {
				x.say("found: %s", explain(a.Err))
			} else {
				x.say("found: %s", x.labels[a.Messages])
			}
		case Changed:
			x.say("changed")
		case AccessChanged:
			if x.rights {
				x.say("rights have changed")
			}
		case Access:
			if a.Err != nil {
				x.say("rights: %s", explain(a.Err))
			} else {
				x.say("rights: watch=%s", strings.Join(a.Access.Of(assignment.Watch), ","))
			}
		case Log:
			if a.Level > slog.LevelInfo {
				x.say("log %s: %s", strings.ToLower(a.Level.String()), a.Message)
			}
		case Pause:
			x.say("pause new connections")
		case Resume:
			x.say("resume new connections")
		}
	}
	return sent
}

var generations = regexp.MustCompile(`\b1700000000\d{3}\b`)

func explain(err error) string {
	s := status.Convert(err)
	return fmt.Sprintf("%s: %s", s.Code(), generations.ReplaceAllStringFunc(s.Message(), func(g string) string {
		n, _ := strconv.ParseInt(g, 10, 64)
		return "g" + gen(n)
	}))
}

// content is what is sent to a subscriber.
func (x *transcript) content(a Send) string {
	if a.Kind != "" {
		return x.labels[a.Messages]
	}
	var c captured
	if err := a.Messages.Send(&c, nil); err != nil {
		return err.Error()
	}
	if q := c.m.GetQuotas(); q != nil {
		words := "quotas:"
		for _, l := range q.GetLimits().GetCustomers() {
			words += fmt.Sprintf(" %s is limited to %g", l.Customer, l.Rate)
		}
		if q.Limits != nil && len(q.Limits.Customers) == 0 {
			words += " no limits"
		}
		for _, share := range q.Share {
			words += fmt.Sprintf(" mail may use %.3g", share)
		}
		return words
	}
	s := c.m.GetStatus()
	words := []string{"status"}
	if s.ConvergedGeneration != 0 {
		words = append(words, "all hold g"+gen(s.ConvergedGeneration))
	}
	if s.Unacknowledged {
		words = append(words, "unacknowledged")
	}
	if s.ClientIndex != nil {
		words = append(words, fmt.Sprintf("your index is %d", s.GetClientIndex()))
	}
	if s.Subscribers > 0 {
		words = append(words, fmt.Sprintf("%d subscribers", s.Subscribers))
	}
	for _, c := range s.Conditions {
		what := fmt.Sprintf("refuses below %d", c.Level)
		if c.Draining {
			what = "drains"
		}
		words = append(words, fmt.Sprintf("%s/%d %s", c.Task, c.Incarnation, what))
	}
	if s.Limited {
		words = append(words, "limited")
	}
	words = append(words, fmt.Sprintf("report every %dms", s.ReportIntervalMs))
	return words[0] + " " + strings.Join(words[1:], ", ")
}

// captured is a stream in this process that keeps the last message.
type captured struct {
	grpc.ServerStream
	m *slicerv1.WatchResponse
}

func (*captured) Local()                   {}
func (*captured) Context() context.Context { return context.Background() }
func (c *captured) SendMsg(m any) error {
	r, ok := m.(*slicerv1.WatchResponse)
	if !ok {
		return errors.New("not a response")
	}
	c.m = r
	return nil
}

// toldOf is what an assigner is told.
func toldOf(m *slicerv1.AttachRequest) string {
	switch {
	case m.GetWant() != nil:
		w := m.GetWant()
		words := "want, holding g" + gen(w.Generation)
		if w.Generation == 0 {
			words = "want, holding nothing"
		}
		if !w.Compressed {
			words += ", not compressed"
		}
		if w.NewestReported != 0 {
			words += ", a slicelet has g" + gen(w.NewestReported)
		}
		return words
	case m.GetWantBase() != nil:
		return "want g" + gen(m.GetWantBase().Generation) + " as a base"
	case m.GetReports() != nil:
		r := m.GetReports()
		words := []string{"reports"}
		if r.Complete {
			words[0] = "all reports"
		}
		for _, t := range r.Reports {
			s := fmt.Sprintf("%s/%d %s", t.Task.Name, t.Task.Incarnation, strings.ToLower(strings.TrimPrefix(t.Report.GetState().String(), "TASK_STATE_")))
			if t.Disconnected {
				s = fmt.Sprintf("%s/%d disconnected", t.Task.Name, t.Task.Incarnation)
			}
			if t.Identity != "" {
				s += " of " + t.Identity
			}
			words = append(words, s)
		}
		return strings.Join(words, " ")
	case m.GetAcks() != nil:
		a := m.GetAcks()
		words := fmt.Sprintf("acks: %d clerks and %d slicelets", a.Clerks, a.Slicelets)
		held := map[string]uint32{}
		for _, h := range a.Holders {
			what := "g" + gen(h.Generation)
			if h.Generation == 0 {
				what = "nothing"
			}
			held[what] += h.Subscribers
		}
		for _, g := range slices.Sorted(maps.Keys(held)) {
			words += fmt.Sprintf(", %d hold %s", held[g], g)
		}
		if len(a.Stragglers) > 0 {
			words += ", late: " + strings.Join(a.Stragglers, " and ")
		}
		if a.SlowTotal > 0 {
			words += fmt.Sprintf(", %d slow", a.SlowTotal)
		}
		return words
	case m.GetCustomerUses() != nil:
		u := m.GetCustomerUses()
		if u.Asks {
			return "what are the limits?"
		}
		words := fmt.Sprintf("uses of %g tasks:", u.Capacity)
		for i, asked := range u.GetUse().GetAsked() {
			words += fmt.Sprintf(" mail asks for %.3g, and uses %.3g", asked, u.GetUse().GetUsed()[i])
		}
		return words
	case m.GetClients() != nil:
		c := m.GetClients()
		words := []string{"clients"}
		if c.Complete {
			words[0] = "all clients"
		}
		for _, k := range c.Clients {
			s := k.ClientId
			if k.Index != nil {
				s += fmt.Sprintf(" with index %d", k.GetIndex())
			}
			if k.Disconnected {
				s += " gone"
			}
			words = append(words, s)
		}
		return strings.Join(words, " ")
	}
	return fmt.Sprint(m)
}
