package relay

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a Distributor that has the job "web" alone, at generation 7.
type source struct {
	mu    sync.Mutex
	views []*slicerv1.Preference
	feeds []*feed
	fetch []*slicerv1.FetchRequest // of the job "web"
}

func (s *source) Assigner(string) grpc.ClientConnInterface { return nil }
func (s *source) Upstreams() []*slicerv1.TierPeer          { return nil }

func (s *source) Preferences() []*slicerv1.Preference {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views
}

func (s *source) Fetch(ctx context.Context, req *slicerv1.FetchRequest, send func(*slicerv1.WatchResponse)) error {
	if req.Job != "web" {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	s.mu.Lock()
	s.fetch = append(s.fetch, req)
	s.mu.Unlock()
	send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Trailer{Trailer: &slicerv1.Trailer{Generation: req.Generation}}})
	return nil
}

func (s *source) Join(job string, in fanout.Hello, send func(Feed, *slicerv1.WatchResponse)) (Feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job != "web" {
		return nil, status.Error(codes.NotFound, "no such job")
	}
	f := &feed{in: in, done: make(chan struct{})}
	s.feeds = append(s.feeds, f)
	go send(f, &slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Trailer{Trailer: &slicerv1.Trailer{Generation: 7}}})
	return f, nil
}

type feed struct {
	in   fanout.Hello
	done chan struct{}

	mu        sync.Mutex
	took      []assignment.Generation
	holds     []fanout.Version
	reads     []bool // compressed wholes, with each of holds
	elsewhere []fanout.Version
	left      bool
}

func (f *feed) Done() <-chan struct{}                              { return f.done }
func (f *feed) Err() error                                         { return status.Error(codes.NotFound, "the job is gone") }
func (f *feed) Status() *slicerv1.JobStatus                        { return nil }
func (f *feed) Age(time.Time, assignment.Generation) time.Duration { return 3 * time.Millisecond }
func (f *feed) Took(_ time.Time, g assignment.Generation) {
	f.note(func() { f.took = append(f.took, g) })
}
func (f *feed) Holds(_ time.Time, v fanout.Version, _ uint64, compressed bool) {
	f.note(func() { f.holds, f.reads = append(f.holds, v), append(f.reads, compressed) })
}
func (f *feed) HeldElsewhere(_ time.Time, v fanout.Version) {
	f.note(func() { f.elsewhere = append(f.elsewhere, v) })
}
func (f *feed) Leave(time.Time) { f.note(func() { f.left = true }) }
func (f *feed) note(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// stream is one of a Distributor of the second tier: what is put into in is received.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
	in     chan *slicerv1.AttachRequest

	mu  sync.Mutex
	out []*slicerv1.AttachResponse
}

func newStream() *stream {
	s := &stream{in: make(chan *slicerv1.AttachRequest, 16)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Recv() (*slicerv1.AttachRequest, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s *stream) Send(m *slicerv1.AttachResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, m)
	return nil
}

// said is all that was sent, a word a message.
func (s *stream) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for _, m := range s.out {
		switch m := m.GetMessage().(type) {
		case *slicerv1.AttachResponse_Hello:
			words = append(words, "hello:"+m.Hello.AssignerId)
		case *slicerv1.AttachResponse_Preference:
			words = append(words, "preference")
		case *slicerv1.AttachResponse_Status:
			words = append(words, "unknown:"+m.Status.Job)
		case *slicerv1.AttachResponse_Base:
			if m.Base.GetTrailer() == nil {
				words = append(words, "nobase:"+m.Base.Job)
			} else {
				words = append(words, "base:"+m.Base.Job)
			}
		case *slicerv1.AttachResponse_Assignment:
			words = append(words, "assignment:"+m.Assignment.Job)
		}
	}
	return strings.Join(words, " ")
}

func hello(id string) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Hello{Hello: &slicerv1.DistributorHello{DistributorId: id}}}
}

func wanted(m *slicerv1.Want) *slicerv1.AttachRequest { return fanout.WantRequest(m) }

func wantedBase(job string) *slicerv1.AttachRequest {
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_WantBase{WantBase: &slicerv1.WantBase{Job: job, Generation: 5, Compressed: true}}}
}

// attach runs Attach; its end comes in the channel.
func attach(s *Service, st *stream) <-chan error {
	end := make(chan error, 1)
	go func() {
		err := s.Attach(st)
		st.cancel() // as gRPC does
		end <- err
	}()
	return end
}

func service(src *source, change func(*Config)) *Service {
	cfg := Config{ID: "d1", Serve: true, Source: src, Logger: slog.New(slog.DiscardHandler), Attached: func(int) {}}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  *slicerv1.AttachRequest
		change func(*Config)
		header string
		code   codes.Code
		says   string
	}{
		{name: "no hello", first: wantedBase("web"), code: codes.InvalidArgument, says: "distributor_id"},
		{name: "itself", first: hello("d1"), code: codes.FailedPrecondition, says: "of itself"},
		{name: "second tier", first: hello("d2"), change: func(c *Config) { c.Upstreams = []string{"up:1"} }, code: codes.FailedPrecondition, says: "up:1"},
		{name: "serves none", first: hello("d2"), change: func(c *Config) { c.Serve = false }, code: codes.PermissionDenied, says: "--serve-distributors"},
		{name: "no such assigner", first: hello("d2"), header: "a9", code: codes.Unavailable, says: `"a9"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := service(&source{}, c.change)
			defer s.Close()
			st := newStream()
			if c.header != "" {
				st.ctx = metadata.NewIncomingContext(st.ctx, metadata.Pairs(assignerHeader, c.header))
			}
			st.in <- c.first
			if err := <-attach(s, st); status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s that says %q", err, c.code, c.says)
			}
		})
	}
}

// A job that is wanted is sent, counts as taken, and is entered as what the other end says
// that it holds; one that is unknown is said to be so, and looked for again.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{views: []*slicerv1.Preference{{StoreId: 1}}}
		s := service(src, nil)
		st := newStream()
		end := attach(s, st)
		st.in <- hello("d2")
		synctest.Wait() // for our hello, which is the first that is said
		st.in <- wanted(&slicerv1.Want{Job: "web", Generation: 6, StoreId: 1, Checksum: 60, NewestReported: 9, NewestReportedStoreId: 1, Compressed: true})
		synctest.Wait()
		if got := st.said(); got != "hello:d1 preference assignment:web" {
			t.Errorf("said %q", got)
		}
		f := src.feeds[0]
		if f.in.Held != (fanout.Version{Store: 1, Gen: 6}) || f.in.Checksum != 60 || !f.in.Compressed || f.in.Role != slicerv1.Role_ROLE_OBSERVER {
			t.Errorf("entered as %+v", f.in)
		}
		if len(f.took) != 1 || f.took[0] != 7 || len(f.elsewhere) != 1 || f.elsewhere[0].Gen != 9 {
			t.Errorf("took %v, held elsewhere %v", f.took, f.elsewhere)
		}
		st.in <- wanted(&slicerv1.Want{Job: "web"})
		s.Notify() // of nothing new
		synctest.Wait()
		if len(f.holds) != 1 || f.holds[0] != (fanout.Version{}) || f.reads[0] || len(src.feeds) != 1 {
			t.Errorf("wanted anew: holds %v, reads compressed wholes %v, %d feeds", f.holds, f.reads, len(src.feeds))
		}
		st.in <- wanted(&slicerv1.Want{Job: "web", Compressed: true})
		synctest.Wait()
		if len(f.reads) != 2 || !f.reads[1] {
			t.Errorf("wanted anew, compressed: %v", f.reads)
		}
		st.in <- wanted(&slicerv1.Want{Job: "web", Stop: true})
		synctest.Wait()
		if !f.left {
			t.Error("not left, though it is not wanted any more")
		}
		st.in <- wanted(&slicerv1.Want{Job: "none"})
		synctest.Wait()
		time.Sleep(2 * fanout.UnknownFor)
		synctest.Wait()
		if got := st.said(); strings.Count(got, "unknown:none") < 2 {
			t.Errorf("said %q: a job that may have come is not looked for again", got)
		}
		s.Close()
		if err := <-end; status.Code(err) != codes.Unavailable {
			t.Errorf("ended with %v", err)
		}
		if s.Attach(newStream()) == nil {
			t.Error("let in after Close")
		}
	})
}

// One base is looked for at a time: another is answered with none at once.
func TestBases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		s := service(src, nil)
		st := newStream()
		end := attach(s, st)
		st.in <- hello("d2")
		synctest.Wait() // for our hello, which is the first that is said
		st.in <- wantedBase("web")
		synctest.Wait()
		if len(src.fetch) != 1 || src.fetch[0].Generation != 5 || !src.fetch[0].Compressed {
			t.Errorf("fetched %v, want generation 5, compressed", src.fetch)
		}
		st.in <- wantedBase("slow")
		st.in <- wantedBase("web")
		synctest.Wait()
		if got := st.said(); got != "hello:d1 base:web nobase:web" {
			t.Errorf("said %q", got)
		}
		time.Sleep(fanout.Patience)
		synctest.Wait()
		if got := st.said(); got != "hello:d1 base:web nobase:web nobase:slow" {
			t.Errorf("said %q", got)
		}
		st.in <- wantedBase("no/name")
		if err := <-end; status.Code(err) != codes.InvalidArgument {
			t.Errorf("ended with %v", err)
		}
		s.Close()
	})
}

// Of two streams of one Distributor the newer counts; Describe names each once.
func TestNewerStreamCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts []int
		s := service(&source{}, func(c *Config) { c.Attached = func(n int) { counts = append(counts, n) } })
		first, second := newStream(), newStream()
		ended := attach(s, first)
		first.in <- hello("d2")
		synctest.Wait()
		last := attach(s, second)
		second.in <- hello("d2")
		if err := <-ended; status.Code(err) != codes.Aborted {
			t.Errorf("the older ended with %v", err)
		}
		synctest.Wait()
		r, err := s.Describe(t.Context(), nil)
		if err != nil || len(r.Downstreams) != 1 || r.Downstreams[0].Id != "d2" || r.Tier != 1 {
			t.Errorf("%v, %v", r, err)
		}
		close(second.in)
		if err := <-last; err != nil {
			t.Errorf("a stream that was closed ended with %v", err)
		}
		synctest.Wait()
		if got := counts[len(counts)-1]; got != 0 {
			t.Errorf("%d are attached at the end", got)
		}
		s.Close()
	})
}
