package protocol

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// world drives a core through whatever servers and networks may do, and checks
// what must always hold.
type world struct {
	receiver
	t    *rapid.T
	c    *Core
	now  time.Time
	past [2][]*assignment.Assignment // by store
	up   map[Link]string             // links that were dialled and not cut: dialing, linked
	seen map[uint64]assignment.Generation
}

func (w *world) settle() {
	for _, a := range w.c.Actions() {
		switch a.Do {
		case Dial:
			if a.Via == 0 && (len(w.up) >= 3 || len(w.up) == 2 && w.c.scan.phase == off) {
				w.t.Fatalf("one link too many: %v", w.up)
			}
			if a.Via != 0 && w.up[a.Via] != "linked" {
				w.t.Fatalf("to dial on the connection of %d, which is %q", a.Via, w.up[a.Via])
			}
			w.up[a.Link] = "dialing"
		case Cut:
			delete(w.up, a.Link)
		case Send:
			if w.up[a.Link] != "linked" {
				w.t.Fatalf("%v sent on a link that is %q", a.Message, w.up[a.Link])
			}
		}
	}
	s := w.c.State()
	if a := s.Assignment; a != nil {
		if a.Generation() < w.seen[a.StoreID()] && s.Source != Distributor {
			w.t.Fatalf("store %d went back from %d to %d", a.StoreID(), w.seen[a.StoreID()], a.Generation())
		}
		w.seen = map[uint64]assignment.Generation{a.StoreID(): a.Generation()}
	}
	if s.Link == None && s.Err == nil {
		w.t.Fatal("no server serves, and no reason why")
	}
	if w.c.back.phase != off && !w.c.disconnected {
		w.t.Fatal("a backup distributor is used although not disconnected")
	}
	if looks := w.c.scan.phase != off; looks != (w.c.dist.phase == serving && w.c.dist.unacknowledged) {
		w.t.Fatalf("looks for another distributor: %t; its own serves: %t, and is not heard: %t", looks, w.c.dist.phase == serving, w.c.dist.unacknowledged)
	}
	if due := w.c.Wake(); due.IsZero() && s.Link == None && w.c.dist.phase != open && w.c.back.phase != open {
		w.t.Fatal("nothing will ever happen")
	}
}

// pass lets time go by. An endless loop shows as too many ticks.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for ticks := 0; ; ticks++ {
		w.settle()
		due := w.c.Wake()
		if due.IsZero() || due.After(end) {
			w.now = end
			return
		}
		if ticks > 200+int(d/time.Millisecond) {
			w.t.Fatalf("%d ticks within %s", ticks, d)
		}
		if due.After(w.now) {
			w.now = due
		}
		w.c.Tick(w.now)
	}
}

func (w *world) link() Link {
	id := rapid.SampledFrom([]Link{w.c.dist.link, w.c.back.link, w.c.scan.link, w.c.last}).Draw(w.t, "link")
	return id
}

func (w *world) linked(id Link) {
	if w.up[id] == "dialing" {
		w.up[id] = "linked"
		w.c.Linked(w.now, id)
	}
}

func (w *world) frame(id Link, f *wire.Frame, err error) {
	if err != nil {
		w.t.Fatal(err)
	}
	if w.up[id] != "linked" {
		return
	}
	for _, m := range subscribertest.Messages(f) {
		w.receiver.received(w.c, id, m, w.now)
	}
}

func (w *world) step() {
	draw := func(lo, hi int, label string) int { return rapid.IntRange(lo, hi).Draw(w.t, label) }
	past := w.past[draw(0, 1, "store")]
	at := draw(0, len(past)-1, "generation")
	switch kind := rapid.SampledFrom([]string{"linked", "end", "whole", "delta", "status", "garbage", "wait", "report"}).Draw(w.t, "event"); kind {
	case "linked":
		w.linked(w.link())
	case "end":
		if id := w.link(); w.up[id] != "" {
			code := rapid.SampledFrom([]codes.Code{codes.Unavailable, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Internal}).Draw(w.t, "code")
			w.c.Ended(w.now, id, status.Error(code, "told so"))
		}
	case "whole":
		f, err := wire.WholeFrame(past[at])
		w.frame(w.link(), f, err)
	case "delta":
		f, err := wire.DeltaFrame(past[draw(0, at, "base")], past[at])
		w.frame(w.link(), f, err)
	case "status":
		id := w.link()
		if w.up[id] == "linked" {
			m := &slicerv1.Status{TakesReports: rapid.Bool().Draw(w.t, "takes"), RepeatMs: int64(draw(0, 3000, "repeat")), Unacknowledged: rapid.Bool().Draw(w.t, "unacknowledged")}
			w.receiver.received(w.c, id, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: m}}, w.now)
		}
	case "garbage":
		f, err := wire.WholeFrame(past[at])
		f.Data = append([]byte(nil), f.Data...)
		f.Data[draw(0, len(f.Data)-1, "where")] ^= byte(draw(1, 255, "what"))
		w.frame(w.link(), f, err)
	case "wait":
		w.pass(time.Duration(draw(0, 20000, "ms")) * time.Millisecond)
	case "report":
		w.c.Report(w.now, &slicerv1.Report{Sequence: 1})
	}
	w.settle()
}

// heal makes every server of store 0 answer, and checks that the newest arrives.
func (w *world) heal() {
	newest := w.past[0][len(w.past[0])-1]
	for range 40 {
		w.pass(500 * time.Millisecond)
		for _, id := range []Link{w.c.dist.link, w.c.back.link} {
			if w.up[id] != "dialing" {
				continue
			}
			w.linked(id)
			f, err := wire.WholeFrame(newest)
			w.frame(id, f, err)
		}
		if id := w.c.dist.link; w.up[id] == "linked" && (w.c.dist.phase != serving || w.c.held.Checksum() != newest.Checksum()) {
			// As a Distributor does for a subscriber that says it holds something else.
			f, err := wire.WholeFrame(newest)
			w.frame(id, f, err)
		}
	}
	s := w.c.State()
	if s.Link != Distributor || s.Assignment.Checksum() != newest.Checksum() || s.Disconnected || w.c.back.phase != off {
		w.t.Fatalf("not well after 20 s with a healthy control plane: served by %s, disconnected %t, %v", s.Link, s.Disconnected, s.Err)
	}
}

// TestAnythingGoes: whatever happens, in any order, the invariants hold, and once
// the servers are well the subscriber is too.
func TestAnythingGoes(t *testing.T) {
	past := [2][]*assignment.Assignment{subscribertest.History(t, 1, 12), subscribertest.History(t, 2, 12)}
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Job: "job", Role: Slicelet, ClientID: "me", Task: subscribertest.Task("a", 0)}
		for i := range rapid.IntRange(1, 3).Draw(t, "distributors") {
			cfg.Distributors = append(cfg.Distributors, fmt.Sprint("d", i))
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "backups") {
			cfg.Backups = append(cfg.Backups, fmt.Sprint("b", i))
		}
		var cached *assignment.Assignment
		if at := rapid.IntRange(-1, 5).Draw(t, "cached"); at >= 0 {
			cached = past[0][at]
		}
		w := &world{t: t, now: time.Unix(1e9, 0), past: past, up: make(map[Link]string), seen: make(map[uint64]assignment.Generation)}
		cfg.Seed = rapid.Uint64().Draw(t, "seed")
		w.c = New(cfg, cached, assignment.Affinity, -1)
		w.c.Start(w.now)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.step()
		}
		w.heal()
	})
}

// FuzzReceive: no message makes the core panic, or take an assignment of
// another job.
func FuzzReceive(f *testing.F) {
	past := subscribertest.History(f, 1, 3)
	whole, err := wire.WholeFrame(past[2])
	if err != nil {
		f.Fatal(err)
	}
	delta, err := wire.DeltaFrame(past[0], past[1])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Data, whole.Trailer.Generation, whole.Trailer.Base, whole.Trailer.Checksum, whole.Trailer.Size, int64(1000), "requests")
	f.Add(delta.Data, delta.Trailer.Generation, delta.Trailer.Base, delta.Trailer.Checksum, delta.Trailer.Size, int64(-1), "")
	f.Fuzz(func(t *testing.T, data []byte, gen, base int64, sum, size uint64, ms int64, text string) {
		cfg := Config{Job: "job", Role: Clerk, ClientID: "me", Distributors: []string{"d"}}
		c := New(cfg, past[0], 0, -1)
		now := time.Unix(0, 0)
		c.Start(now)
		c.Linked(now, c.dist.link)
		var r receiver
		for _, m := range []*slicerv1.WatchResponse{
			{Message: &slicerv1.WatchResponse_Status{Status: &slicerv1.Status{
				ConvergedGeneration: gen, Stragglers: []string{text}, ReportIntervalMs: ms, LoadMetric: text, Mode: slicerv1.Mode(ms), RepeatMs: ms,
				Conditions: slices.Repeat([]*slicerv1.TaskCondition{nil, {Task: text, Incarnation: sum, Draining: ms < 0, Level: uint32(ms), PauseMs: uint32(size)}}, int(size%1000)), Subscribers: uint32(size), Limited: true,
				Overload: &slicerv1.OverloadConfig{Admission: slicerv1.Admission(ms), DefaultCriticality: slicerv1.Criticality(gen), RetryAttempts: uint32(size), RetryBudget: math.Float64frombits(sum)},
			}}},
			{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{Customer: []uint64{sum, size}, Share: []float32{math.Float32frombits(uint32(ms)), 1}}}},
			{Message: &slicerv1.WatchResponse_Chunk{Chunk: &slicerv1.Chunk{Data: data}}},
			{Message: &slicerv1.WatchResponse_Trailer{Trailer: &slicerv1.Trailer{Generation: gen, Base: base, Checksum: sum, Size: size}}},
			{Message: &slicerv1.WatchResponse_Trailer{}}, {Message: &slicerv1.WatchResponse_Chunk{}}, {Message: &slicerv1.WatchResponse_Status{}}, {}, nil,
		} {
			r.received(c, c.dist.link, m, now)
			now = now.Add(time.Second)
			c.Tick(now)
		}
		s := c.State()
		if s.Assignment.Job() != "job" || len(s.Status.Conditions) > wire.MaxConditions || s.Status.ReportInterval < minReportInterval || s.Status.ReportInterval > maxReportInterval {
			t.Fatalf("took %v", s)
		}
	})
}
