package autosharding

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
	"github.com/slicer-project/slicer/distributor/internal/answers"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

func TestNewestSupersedes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 3, 10, false), nil)
		c := st.watch("u1", 0)
		first := st.next(c)
		// Until the client has answered nothing more is sent, and then the newest.
		for i := range 5 {
			st.f.set(makeAssignment(t, baseGen+1+assignment.Generation(i), 3, 10, false), nil)
			synctest.Wait()
		}
		time.Sleep(answerWithin - time.Second)
		c.Ack(first.Generation, "")
		if a := st.next(c); a.Generation != baseGen+5 {
			t.Errorf("after generation 0 came %d, want 5", a.Generation-baseGen)
		}
		c.Ack(baseGen+5, "")
		if got := st.f.hear(); got != "grpc-clerk u1 joins web at 0; grpc-clerk u1 holds 0; grpc-clerk u1 holds 5" {
			t.Errorf("heard %q", got)
		}
		if n := st.metric("assignments_total"); n != 2 {
			t.Errorf("%v assignments were sent, want 2", n)
		}
		if acks, remarks := st.metric("acks_total"), st.metric("ack_remarks_total"); acks != 2 || remarks != 0 {
			t.Errorf("%v acks, %v with remarks", acks, remarks)
		}
		c.CloseSend()
		if _, err := c.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ends with %v", err)
		}
		if got := st.f.hear(); got != "grpc-clerk u1 leaves" {
			t.Errorf("heard %q", got)
		}
		if n := st.metric("clients"); n != 0 {
			t.Errorf("%v clients", n)
		}
	})
}

func TestRefusalIsNotResent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 3, 10, false), nil)
		clients := []*autoshardingtest.Client{st.watch("u0", 0), st.watch("u1", 0), st.watch("u2", 0)}
		for _, c := range clients {
			c.Nack(st.next(c).Generation, "bad endpoints")
		}
		synctest.Wait()
		if n, r := st.metric("nacks_total"), st.metric("clients_refusing"); n != 3 || r != 3 {
			t.Errorf("%v nacks, %v refusing", n, r)
		}
		time.Sleep(time.Hour)
		if n := st.metric("assignments_total"); n != 3 {
			t.Errorf("%v assignments were sent, want 3", n)
		}
		if n := strings.Count(st.log.String(), "bad endpoints"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, st.log)
		}
		clients[0].Close()
		st.f.set(makeAssignment(t, baseGen+1, 3, 10, false), nil)
		clients[1].Ack(st.next(clients[1]).Generation, "a gap")
		clients[2].Nack(st.next(clients[2]).Generation, "no")
		synctest.Wait()
		if n, r := st.metric("nacks_total"), st.metric("clients_refusing"); n != 4 || r != 1 {
			t.Errorf("%v nacks, %v refusing", n, r)
		}
		if !strings.Contains(st.log.String(), "others_since_the_last=2") {
			t.Errorf("the log does not say how many it left out:\n%s", st.log)
		}
		now := time.Now()
		want := Counts{Counts: answers.Counts{Clients: 2, Refusing: 1, Acks: 1, Nacks: 4, LastNack: "no"}, Remarks: 1, LastRemark: "a gap"}
		if got := st.s.Counts(now, "web"); got != want {
			t.Errorf("counts are %+v, want %+v", got, want)
		}
		st.s.Forget("web")
		if got := st.s.Counts(now, "web"); got != want {
			t.Errorf("a job with clients was forgotten: %+v", got)
		}
		clients[1].Close()
		clients[2].Close()
		synctest.Wait()
		st.s.Forget("web")
		if got := st.s.Counts(now, "web"); got != (Counts{}) || st.metric("nacks_total") != 0 {
			t.Errorf("counts are %+v", got)
		}
	})
}

// TestAsksForLoad: clients of tasks that measure nothing themselves are asked to report
// load, once, and others are not.
func TestAsksForLoad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.measured = true
		first := makeAssignment(t, baseGen, 3, 10, false)
		st.f.set(first, nil)
		c := st.watch("u", 0)
		c.Ack(st.next(c).Generation, "")
		again := func(g assignment.Generation) {
			time.Sleep(2 * time.Minute)
			st.f.set(makeAssignment(t, g, 3, 10, false), nil)
			c.Ack(st.next(c).Generation, "")
		}
		again(baseGen + 1)
		if n := len(c.Configs()); n != 0 {
			t.Errorf("asked %d times though the tasks measure load", n)
		}
		st.f.mu.Lock()
		st.f.measured = false
		st.f.mu.Unlock()
		again(baseGen + 2)
		again(baseGen + 3)
		if len(c.Configs()) != 1 {
			t.Fatalf("asked %d times", len(c.Configs()))
		}
		var m autoshardingv1.LoadReportingConfig
		if err := proto.Unmarshal(c.Configs()[0], &m); err != nil || m.GetLoadReportingInterval().AsDuration() != 10*time.Second ||
			m.GetLoadReportStartThreshold().AsDuration() != 10*time.Second || m.GetLoadQuantumFraction() != .01 || m.GetMaxLoadBalancingResolutionBytes() != 16 {
			t.Errorf("%v, %v", &m, err)
		}
	})
}

// TestLastRemark: the newest one, whole.
func TestLastRemark(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 3, 10, false), nil)
		c := st.watch("u", 0)
		c.Ack(st.next(c).Generation, "the first")
		long := strings.Repeat("no such endpoint: ü ", 25)
		st.f.set(makeAssignment(t, baseGen+1, 3, 10, false), nil)
		c.Ack(st.next(c).Generation, long)
		st.f.set(makeAssignment(t, baseGen+2, 3, 10, false), nil)
		c.Ack(st.next(c).Generation, "") // which is none
		time.Sleep(5 * time.Second)
		if got := st.s.Counts(time.Now(), "web"); got.LastRemark != long || got.LastRemarkAge != 5*time.Second || got.Remarks != 2 || got.Acks != 3 {
			t.Errorf("counts are %+v", got)
		}
	})
}

// A client that does not answer, and one that does not read, are told to go.
func TestSilentClientsAreLetGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		small := makeAssignment(t, baseGen, 3, 10, false)
		st.f.set(small, nil)
		mute, polite := st.watch("mute", 0), st.watch("polite", 0)
		st.next(mute)
		polite.Ack(st.next(polite).Generation, "")
		st.f.set(makeAssignment(t, baseGen+1, 30, 20_000, false), nil)
		blind := st.watch("blind", small.Generation()) // its flow-control window takes less than that
		began := time.Now()
		polite.Ack(st.next(polite).Generation, "")
		st.ends(mute, codes.DeadlineExceeded, "neither read nor acknowledged")
		if d := time.Since(began); d != answerWithin {
			t.Errorf("after %v", d)
		}
		synctest.Wait()
		if n := st.metric("clients"); n != 1 {
			t.Errorf("%v clients are left, want the polite one", n)
		}
		st.ends(blind, codes.DeadlineExceeded, "neither read nor acknowledged")
		time.Sleep(time.Hour)
		st.f.set(makeAssignment(t, baseGen+2, 3, 10, false), nil)
		st.next(polite)
	})
}

func TestMalformedRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 3, 10, false), nil)
		at := time.Unix(0, 0)
		first := autoshardingtest.Initial("web", "u", 0)
		for _, c := range []struct {
			what string
			msgs [][]byte
			says string
		}{
			{"an acknowledgement first", [][]byte{autoshardingtest.Answer(1, true, "")}, "the first message is not"},
			{"nothing set", [][]byte{nil}, "the first message is not"},
			{"a target that is no job name", [][]byte{autoshardingtest.Initial("a/b", "u", 0)}, `"a/b"`},
			{"no uuid", [][]byte{autoshardingtest.Initial("web", "", 0)}, "client_uuid"},
			{"a long uuid", [][]byte{autoshardingtest.Initial("web", strings.Repeat("u", 129), 0)}, "client_uuid"},
			{"a uuid that spoils a log", [][]byte{autoshardingtest.Initial("web", "u\n", 0)}, "client_uuid"},
			{"a generation below 0", [][]byte{autoshardingtest.Initial("web", "u", -1)}, "latest_generation: -1"},
			{"a generation from the future", [][]byte{autoshardingtest.Initial("web", "u", baseGen+48*time.Hour.Milliseconds())}, "latest_generation"},
			{"who it is twice", [][]byte{first, first}, "said before"},
			{"nothing set later", [][]byte{first, {}}, "neither a load_report nor an assignment_ack"},
			{"something not sent acknowledged", [][]byte{first, autoshardingtest.Answer(baseGen+1, true, "")}, "generation: 1700000000001 is not allowed"},
			{"generation 0 acknowledged", [][]byte{first, autoshardingtest.Answer(0, true, "")}, "generation: 0 is not allowed"},
			{"something acknowledged twice", [][]byte{first, autoshardingtest.Answer(baseGen, true, ""), autoshardingtest.Answer(baseGen, false, "")}, "once"},
			{"a long message", [][]byte{first, autoshardingtest.Answer(baseGen, false, strings.Repeat("é", 513))}, "513 code points"},
			{"a report of no time", [][]byte{first, autoshardingtest.Report("requests", at, at)}, "end_time"},
			{"a report of more than a day", [][]byte{first, autoshardingtest.Report("requests", at, at.Add(25*time.Hour))}, "end_time"},
			{"ranges out of order", [][]byte{first, autoshardingtest.Report("requests", at, at.Add(1), autoshardingtest.Load{Start: "b"}, autoshardingtest.Load{Start: "a"})}, "range_loads[1].start_key"},
			{"a load below 0", [][]byte{first, autoshardingtest.Report("requests", at, at.Add(1), autoshardingtest.Load{Load: -1})}, "range_loads[0].load"},
			{"a long key", [][]byte{first, autoshardingtest.Report("requests", at, at.Add(1), autoshardingtest.Load{Start: strings.Repeat("a", 1025)})}, "1025 bytes"},
		} {
			s, err := autoshardingtest.Open(t.Context(), st.cc)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range c.msgs {
				s.Send(m)
				synctest.Wait()
				if i == 0 && len(c.msgs) > 1 {
					st.next(s)
				}
			}
			t.Log(c.what)
			st.ends(s, codes.InvalidArgument, c.says)
		}
		silent, err := autoshardingtest.Open(t.Context(), st.cc)
		if err != nil {
			t.Fatal(err)
		}
		silent.Send(nil)
		late, err := autoshardingtest.Open(t.Context(), st.cc)
		if err != nil {
			t.Fatal(err)
		}
		st.ends(late, codes.DeadlineExceeded, "no initial_client_config")
		if a, n := st.metric("clients"), st.metric("acks_total"); a != 0 || n != 1 {
			t.Errorf("%v clients, %v acks", a, n)
		}
	})
}

func TestErrorsOfTheSource(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(nil, status.Error(codes.NotFound, "no such job"))
		st.ends(st.watch("u1", 0), codes.NotFound, "no such job")
		st.f.set(nil, nil)
		c := st.watch("u2", 0)
		synctest.Wait()
		st.f.set(nil, status.Error(codes.Unavailable, "nobody knows"))
		st.ends(c, codes.Unavailable, "nobody knows")
	})
}

func TestLoadReports(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 3, 100, false), nil)
		c := st.watch("u1", 0)
		synctest.Wait() // what comes before there is an assignment has no series
		at := time.Unix(0, 0)
		c.Send(autoshardingtest.Report("requests", at, at.Add(10*time.Second), autoshardingtest.Load{Start: "1", Load: 5}))
		c.Send(autoshardingtest.Report("requests", at, at.Add(10*time.Second), autoshardingtest.Load{Start: "2", Load: 5}))
		synctest.Wait()
		time.Sleep(reportGap)
		c.Send(autoshardingtest.Report("cpu", at, at.Add(10*time.Second), autoshardingtest.Load{Start: "3", Load: 5}))
		synctest.Wait()
		if len(st.f.reports) != 1 || st.f.reports[0].Starts[0] != 1<<60 || st.f.reports[0].Amount[0] != 5 {
			t.Errorf("reports are %+v", st.f.reports)
		}
		if n := st.metric("load_reports_total"); n != 3 {
			t.Errorf("%v reports are counted", n)
		}
	})
}

// A client that compresses gets an encoding of its own, the same as the shared one.
func TestCompressedStreams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{Endpoint: "name.web.svc"})
		a := makeAssignment(t, baseGen, 3, 1000, true)
		st.f.set(a, nil)
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}, nil} {
			got := st.next(st.watch("u", 0, opts...))
			wantSame(t, got, a, func(t assignment.Task) string { return t.Name + ".web.svc" })
		}
		if n := st.metric("encodes_total"); n != 2 {
			t.Errorf("%v encodings, want one that is shared and one of its own", n)
		}
	})
}

func TestCloseEndsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeAssignment(t, baseGen, 30, 20_000, false), nil)
		blind, quiet := st.watch("blind", 0), st.watch("quiet", baseGen)
		open, err := autoshardingtest.Open(context.Background(), st.cc)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := st.s.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []*autoshardingtest.Client{blind, quiet, open} {
			st.ends(c, codes.Unavailable, "shutting down")
		}
		st.ends(st.watch("late", 0), codes.Unavailable, "shutting down")
	})
}

// What was encoded of one store is not sent once there is another, even if that begins
// with lower numbers; and nothing is kept that no client needs.
func TestAnotherStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStand(t, Config{})
		st.f.set(makeIn(t, 7, baseGen+5, 3, 10, false), nil)
		old := st.watch("old", 0)
		old.Ack(st.next(old).Generation, "")
		st.f.set(makeIn(t, 8, baseGen+1, 3, 20, false), nil)
		young := st.watch("young", 0)
		if a := st.next(young); a.Generation != baseGen+1 || len(a.Slices) != 20+2 {
			t.Errorf("sent generation %d of %d slices", a.Generation-baseGen, len(a.Slices))
		}
		young.Ack(baseGen+1, "")
		st.f.set(makeIn(t, 8, baseGen+6, 3, 20, false), nil)
		for _, c := range []*autoshardingtest.Client{old, young} {
			if a := st.next(c); a.Generation != baseGen+6 {
				t.Errorf("sent generation %d", a.Generation-baseGen)
			}
			c.Close()
		}
		synctest.Wait()
		st.s.mu.Lock()
		defer st.s.mu.Unlock()
		if st.s.jobs["web"].newest != nil {
			t.Error("an encoding is kept, and there are no clients")
		}
	})
}
