package protocol

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	testJob = "web"
	baseGen = 1_700_000_000_000
)

// The files of testdata are transcripts: what happens to one job and its subscribers, and
// below each run what follows. `go test ./backupdist/protocol -run TestTranscripts -rewrite`
// writes what follows anew. A line is "event arguments"; the arguments are
//
//	store g=2 [store=1] [metric=cpu] [mode=consistent]   what the store has from now on
//	store empty [metric=cpu]                             the job, without an assignment
//	store missing                                        no such job
//	store error=why                                      no answer
//	changed                                              the store has said that the job changed
//	hello n=1 [g=1] [store=1] [role=slicelet]            subscriber 1, which holds g1
//	ack n=1 g=2 [refusal=why]
//	left n=1
//	run [for=1s]                                         time passes
//
// In a run the job is read and the subscribers are sent what is due. Waits are half at
// random: here three quarters of their range. Lines begin with the time since the run began.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		x := &transcript{
			t: t, now: time.UnixMilli(baseGen), job: NewJob(testJob), subs: map[int]*Subscriber{},
			made: map[[2]int]*assignment.Assignment{}, store: Reading{},
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			x.t = t
			return x.do(d)
		})
	})
}

type transcript struct {
	t     *testing.T
	out   strings.Builder
	now   time.Time
	began time.Time // of the run
	job   *Job
	gone  bool // the job has been dropped
	subs  map[int]*Subscriber
	made  map[[2]int]*assignment.Assignment
	store Reading
}

func (x *transcript) assignment(store, g int) *assignment.Assignment {
	k := [2]int{store, g}
	if x.made[k] == nil {
		var p assignment.Placement
		p.Add(0, 0)
		a, err := assignment.Successor(nil, assignment.Header{Job: testJob, StoreID: uint64(store), Generation: assignment.Generation(baseGen + g)},
			[]assignment.Task{{Name: "t", Incarnation: 1, Address: "t:1", Weight: 1, State: assignment.TaskRunning}}, p)
		if err != nil {
			x.t.Fatal(err)
		}
		x.made[k] = a
	}
	return x.made[k]
}

func (x *transcript) do(d *datadriven.TestData) string {
	x.out.Reset()
	number := func(key string, usual int) (n int) {
		n = usual
		d.MaybeScanArgs(x.t, key, &n)
		return n
	}
	text := func(key, usual string) (s string) {
		s = usual
		d.MaybeScanArgs(x.t, key, &s)
		return s
	}
	n, g := number("n", 0), number("g", 0)
	switch d.Cmd {
	case "store":
		x.store = Reading{Exists: !d.HasArg("missing"), Config: assignment.JobConfig{LoadMetric: text("metric", "requests"), Mode: assignment.Affinity}}
		if text("mode", "") == "consistent" {
			x.store.Config.Mode = assignment.Consistent
		}
		if g != 0 {
			x.store.Assignment = x.assignment(number("store", 1), g)
		}
		if why := text("error", ""); why != "" {
			x.store = Reading{Err: errors.New(why)}
		}
	case "changed":
		x.job.Changed()
	case "hello":
		h := &slicerv1.Hello{Job: testJob, Compressed: d.HasArg("compressed"), Role: slicerv1.Role(slicerv1.Role_value["ROLE_"+strings.ToUpper(text("role", "clerk"))])}
		if g != 0 {
			a := x.assignment(number("store", 1), g)
			h.Generation, h.StoreId, h.Checksum = int64(a.Generation()), a.StoreID(), a.Checksum()
		}
		s, err := NewSubscriber(x.now, h)
		if err != nil {
			return status.Convert(err).Message() + "\n"
		}
		if x.subs[n] = s; x.gone {
			x.job, x.gone = NewJob(testJob), false
		}
		x.job.Needed()
	case "ack":
		x.subs[n].Ack(&slicerv1.Ack{Generation: int64(baseGen + g), Refusal: text("refusal", "")})
	case "left":
		delete(x.subs, n)
	case "run":
		length, err := time.ParseDuration(text("for", "0s"))
		if err != nil {
			d.Fatalf(x.t, "%v", err)
		}
		x.run(length)
	default:
		d.Fatalf(x.t, "there is no event %q", d.Cmd)
	}
	return x.out.String()
}

func (x *transcript) say(format string, args ...any) {
	fmt.Fprintf(&x.out, "%-8s"+format+"\n", append([]any{fmt.Sprintf("%dms", x.now.Sub(x.began).Milliseconds())}, args...)...)
}

func (x *transcript) run(length time.Duration) {
	x.began = x.now
	for end := x.now.Add(length); ; {
		at := end
		if wait := x.read(); wait >= 0 && x.now.Add(wait).Before(at) {
			at = x.now.Add(wait)
		}
		for _, n := range slices.Sorted(maps.Keys(x.subs)) {
			if wake := x.send(n); wake.Before(at) {
				at = wake
			}
		}
		if !at.After(x.now) && at.Before(end) {
			continue
		}
		if x.now = at; at.Equal(end) {
			return
		}
	}
}

// read does what the job has to do with the store, and returns how long it waits then,
// below 0 if for an event.
func (x *transcript) read() time.Duration {
	for !x.gone {
		idle := len(x.subs) == 0
		switch do, wait := x.job.Next(x.now, idle); do {
		case ToRead:
			x.job.Begin()
			if err := x.job.Read(x.now, x.store, idle, .5); err != nil {
				x.say("not read: %v", err)
			} else {
				x.say("read: %s", named(x.job.State()))
			}
		case ToDrop:
			if idle {
				x.say("drop the job")
				x.gone = true
			}
			return wait
		default:
			return wait
		}
	}
	return -1
}

func named(s State) string {
	switch {
	case s.Missing:
		return "no such job"
	case s.Newest == nil:
		return "no assignment"
	}
	return gen(s.Newest)
}

func gen(a *assignment.Assignment) string { return fmt.Sprintf("g%d", a.Generation()-baseGen) }

// send sends a subscriber what is due, and returns when it has to be looked at again.
func (x *transcript) send(n int) time.Time {
	for {
		s := x.subs[n]
		send := s.Next(x.now, x.job.State())
		switch {
		case send.Hopeless:
			x.say("end %d", n)
			delete(x.subs, n)
			return x.now.Add(time.Hour)
		case send.Status != nil:
			x.say("send %d: status %s, %s, every %d ms", n, send.Status.LoadMetric, strings.ToLower(strings.TrimPrefix(send.Status.Mode.String(), "MODE_")), send.Status.RepeatMs)
		case send.Base != nil:
			x.say("send %d: delta %s -> %s", n, gen(send.Base), gen(send.Newest))
		case send.Newest != nil:
			as := "whole"
			if send.Compressed {
				as = "whole, compressed"
			}
			x.say("send %d: %s, %s", n, gen(send.Newest), as)
		default:
			return s.Wake()
		}
	}
}
