package autosharding

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// tape is a stream whose client says what is on a tape: messages, each after its
// length. It takes whatever it is sent.
type tape struct {
	serverStream
	rest []byte
	sent chan any
}

func (s *tape) Context() context.Context { return context.Background() }

func (s *tape) Recv() (*autoshardingv1.WatchShardingAssignmentRequest, error) {
	b, n := protowire.ConsumeBytes(s.rest)
	if n < 0 {
		return nil, io.EOF
	}
	s.rest = s.rest[n:]
	m := new(autoshardingv1.WatchShardingAssignmentRequest)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return m, nil
}

func (s *tape) SendMsg(m any) error          { s.sent <- m; return nil }
func (s *tape) SetTrailer(metadata.MD)       {}
func (s *tape) SetHeader(metadata.MD) error  { return nil }
func (s *tape) SendHeader(metadata.MD) error { return nil }

// checked is a source that finds fault with what it must not be told.
type checked struct {
	*fakeSource
	t *testing.T
}

func (c checked) Join(_ context.Context, job, name string, held assignment.Generation) (Feed, error) {
	if err := assignment.ValidateJobName(job); err != nil || held < 0 || !assignment.ValidToken(name[len("grpc-clerk "):], maxUUID) {
		c.t.Errorf("joins %q as %q at %d", job, name, held)
	}
	return checkedFeed{fakeFeed{c.fakeSource, name}, c}, nil
}

type checkedFeed struct {
	fakeFeed
	c checked
}

func (f checkedFeed) Holds(_ time.Time, g assignment.Generation) {
	if g != f.c.newest.Generation() {
		f.c.t.Errorf("holds %d, and was sent %d", g, f.c.newest.Generation())
	}
}

func (f checkedFeed) Report(now time.Time, r *Report) {
	if r.Window <= 0 || len(r.Starts) != len(r.Amount) {
		f.c.t.Errorf("report %+v", r)
	}
	var l Loads
	l.Add(now, f.c.newest, r)
	for _, task := range f.c.newest.Tasks() {
		if got := l.Take(now.Add(time.Second), f.c.newest, task.Name); got != nil && !(got.Total > 0 && got.Total < 1e300) {
			f.c.t.Errorf("load %+v", got)
		}
	}
}

// FuzzStream plays messages to a Service: it must not panic, believe what was not
// sent, or end with anything but a clean end or a bad argument.
func FuzzStream(f *testing.F) {
	at := time.Unix(0, 0)
	seed := func(msgs ...[]byte) {
		var b []byte
		for _, m := range msgs {
			b = protowire.AppendBytes(b, m)
		}
		f.Add(b)
	}
	first := autoshardingtest.Initial("web", "u", 0)
	seed()
	seed(first)
	seed(first, first)
	seed(first, autoshardingtest.Answer(baseGen, true, ""))
	seed(autoshardingtest.Initial("web", "u", baseGen), autoshardingtest.Answer(baseGen, true, ""))
	seed(first, autoshardingtest.Answer(baseGen, false, "no"), autoshardingtest.Answer(-1, false, "\xff"))
	seed(autoshardingtest.Initial("a/b", "\n", -1))
	seed(first, autoshardingtest.Report("requests", at, at.Add(1), autoshardingtest.Load{Start: "", Load: 1}, autoshardingtest.Load{Start: "4z", Load: 1e300}))
	seed(first, autoshardingtest.Report("requests", at.Add(1), at))
	seed([]byte{0xff, 0xff}, nil)
	a := makeAssignment(f, baseGen, 3, 20, true)
	f.Fuzz(func(t *testing.T, b []byte) {
		src := newFakeSource()
		src.newest = a
		s, err := New(Config{Source: checked{src, t}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		switch err := s.watch(&tape{rest: b, sent: make(chan any, 8)}); {
		case err == nil, err == io.EOF:
		case status.Code(err) != codes.InvalidArgument && status.Code(err) != codes.Internal:
			t.Errorf("the stream ends with %v", err)
		}
		s.Close()
	})
}

// FuzzRequest checks what is made of single messages.
func FuzzRequest(f *testing.F) {
	at := time.Unix(0, 0)
	f.Add(autoshardingtest.Initial("web", "u", 7))
	f.Add(autoshardingtest.Answer(7, false, "no"))
	f.Add(autoshardingtest.Report("requests", at, at.Add(time.Second), autoshardingtest.Load{Start: "0", Load: 1}, autoshardingtest.Load{Start: "8", Load: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(autoshardingv1.WatchShardingAssignmentRequest)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		now := time.UnixMilli(baseGen)
		if in, err := checkFirst(m, now); err == nil {
			if assignment.ValidateJobName(in.job) != nil || in.held < 0 || in.held > baseGen+assignment.Generation(assignment.MaxAhead.Milliseconds()) {
				t.Errorf("%+v was believed", in)
			}
		} else if status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
		if r, err := checkReport(m.GetLoadReport(), "requests"); err == nil && r != nil {
			for i, k := range r.Starts {
				if k > assignment.KeyspaceEnd || i > 0 && k < r.Starts[i-1] || !(r.Amount[i] >= 0) || r.Window <= 0 {
					t.Errorf("%+v was believed", r)
				}
			}
		}
		if a := m.GetAssignmentAck(); a != nil && checkAck(a) == nil && len(a.GetErrorMessage()) > 4*maxErrorMessage {
			t.Errorf("a message of %d bytes was taken", len(a.GetErrorMessage()))
		}
	})
}
