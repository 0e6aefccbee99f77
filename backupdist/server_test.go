package backupdist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a Backup Distributor in memory.
func start(t *testing.T, m *memStore) (*Server, *grpc.ClientConn) {
	t.Helper()
	s, err := New(Config{Store: m, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(ServerOptions()...)
	s.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-done })
	cc, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return s, cc
}

// sub is a raw subscriber.
type sub struct {
	t      *testing.T
	stream slicerv1.SubscriberService_WatchClient
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	silent bool
	refuse int
	a      *assignment.Assignment
	kinds  []string
	status *slicerv1.Status
	err    error
}

func hello(job string) *slicerv1.Hello {
	return &slicerv1.Hello{Job: job, Role: slicerv1.Role_ROLE_CLERK, ClientId: "c"}
}

func subscribe(t *testing.T, cc *grpc.ClientConn, h *slicerv1.Hello, base *assignment.Assignment) *sub {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if base != nil {
		h.Generation, h.StoreId, h.Checksum = int64(base.Generation()), base.StoreID(), base.Checksum()
	}
	s := &sub{t: t, stream: stream, cancel: cancel, done: make(chan struct{}), a: base}
	stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
	go s.run()
	t.Cleanup(s.close)
	return s
}

func (s *sub) close() { s.cancel(); <-s.done }

func (s *sub) run() {
	defer close(s.done)
	var asm wire.Assembler
	for {
		m, err := s.stream.Recv()
		s.mu.Lock()
		switch {
		case err != nil:
			s.err = err
			s.mu.Unlock()
			return
		case m.GetChunk() != nil:
			asm.Add(m.GetChunk())
		case m.GetTrailer() != nil:
			s.trailer(&asm, m.GetTrailer())
		case m.GetStatus() != nil:
			s.status = m.GetStatus()
		}
		s.mu.Unlock()
	}
}

func (s *sub) trailer(asm *wire.Assembler, tr *slicerv1.Trailer) {
	s.kinds = append(s.kinds, map[bool]string{true: "whole", false: "delta"}[tr.Base == 0])
	ack := &slicerv1.Ack{Generation: tr.Generation}
	a, err := asm.Finish(tr, s.a)
	switch {
	case err != nil:
		s.t.Error(err)
	case s.refuse > 0:
		s.refuse--
		ack.Refusal = "told to"
	case s.a != nil && s.a.StoreID() == a.StoreID() && a.Generation() < s.a.Generation():
		s.t.Errorf("sent back to %d", a.Generation())
	default:
		s.a = a
	}
	if !s.silent {
		s.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: ack}})
	}
}

// expect settles and compares what the subscriber holds and how it came.
func (s *sub) expect(want *assignment.Assignment, kinds ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.a == nil || s.a.Checksum() != want.Checksum():
		s.t.Errorf("holds %v, want generation %d; %v", s.a, want.Generation(), s.err)
	case !slices.Equal(s.kinds, kinds):
		s.t.Errorf("updates were %v, want %v", s.kinds, kinds)
	}
}

func (s *sub) code() codes.Code {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return status.Code(s.err)
}

func TestServesFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 1000)
		m.write(a)
		s, cc := start(t, m)
		c := subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		b := assigned(t, a, "web", 7, 11, 1000)
		m.write(b)
		c.expect(b, "whole", "delta")
		subscribe(t, cc, hello("web"), b).expect(b)
		subscribe(t, cc, hello("web"), a).expect(b, "delta")
		far := assigned(t, b, "web", 7, 50, 1000)
		ahead := subscribe(t, cc, hello("web"), far)
		ahead.expect(far)
		other := assigned(t, nil, "web", 8, 60, 1000)
		m.write(other)
		c.expect(other, "whole", "delta", "whole")
		ahead.expect(other, "whole")
		m.put("empty")
		d := subscribe(t, cc, hello("empty"), nil)
		time.Sleep(time.Minute)
		first := assigned(t, nil, "empty", 8, 5, 3)
		m.write(first)
		d.expect(first, "whole")
		st := d.status
		if st.GetTakesReports() || st.GetMode() != slicerv1.Mode_MODE_AFFINITY || st.GetRepeatMs() != 5000 || st.GetLoadMetric() != "requests" {
			t.Errorf("status %v", st)
		}
	})
}

func TestOneAtATimeAndTheNewestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 100)
		m.write(a)
		_, cc := start(t, m)
		c := subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		c.mu.Lock()
		c.silent = true
		c.mu.Unlock()
		for g := assignment.Generation(11); g < 20; g++ {
			a = assigned(t, a, "web", 7, g, 100)
			m.write(a)
			synctest.Wait()
		}
		c.mu.Lock()
		c.silent = false
		held := c.a
		c.mu.Unlock()
		if held.Generation() != 11 {
			t.Errorf("holds %d", held.Generation())
		}
		c.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Ack{Ack: &slicerv1.Ack{Generation: 11}}})
		c.expect(a, "whole", "delta", "whole")
		c.mu.Lock()
		c.refuse = 1
		c.mu.Unlock()
		a = assigned(t, a, "web", 7, 20, 100)
		m.write(a)
		c.expect(a, "whole", "delta", "whole", "delta", "whole")
		never := subscribe(t, cc, hello("web"), nil)
		never.mu.Lock()
		never.refuse = maxRefusals
		never.mu.Unlock()
		synctest.Wait()
		if len(never.kinds) != maxRefusals {
			t.Errorf("sent %v to one that refuses", never.kinds)
		}
		a = assigned(t, a, "web", 7, 21, 100)
		m.write(a)
		never.expect(a, "whole", "whole", "whole", "whole")
	})
}

func TestUnknownAndDeletedJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		s, cc := start(t, m)
		if c := subscribe(t, cc, hello("web"), nil); c.code() != codes.NotFound {
			t.Errorf("an unknown job: %v", c.err)
		}
		m.put("web")
		synctest.Wait()
		c := subscribe(t, cc, hello("web"), nil)
		if c.code() != codes.OK {
			t.Errorf("a job that has been made: %v", c.err)
		}
		m.remove("web")
		if c.code() != codes.NotFound {
			t.Errorf("a deleted job: %v", c.err)
		}
		time.Sleep(2 * idleFor)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.jobs) != 0 {
			t.Errorf("%d jobs are kept that there are not", len(s.jobs))
		}
	})
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		m.put("warm")
		a, w := assigned(t, nil, "web", 7, 10, 10), assigned(t, nil, "warm", 7, 10, 10)
		m.write(a)
		m.write(w)
		m.fail(store.ErrUnavailable)
		s, cc := start(t, m)
		time.Sleep(time.Second)
		if err := s.Ready(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("ready: %v", err)
		}
		began := time.Now()
		c := subscribe(t, cc, hello("web"), nil)
		<-c.done
		if c.code() != codes.Unavailable || time.Since(began) != patience {
			t.Errorf("after %s: %v", time.Since(began), c.err)
		}
		m.fail(nil)
		time.Sleep(2 * retryMax)
		c = subscribe(t, cc, hello("web"), nil)
		c.expect(a, "whole")
		m.fail(store.ErrUnavailable)
		time.Sleep(time.Hour)
		subscribe(t, cc, hello("web"), nil).expect(a, "whole")
		subscribe(t, cc, hello("warm"), nil).expect(w, "whole") // nobody had asked for it before
		if err := s.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		b := assigned(t, a, "web", 7, 11, 10)
		m.write(b)
		m.fail(nil)
		time.Sleep(2 * retryMax)
		c.expect(b, "whole", "delta")
		m.fail(fmt.Errorf("%w: /slicer/jobs/x", store.ErrCorrupt))
		bad := subscribe(t, cc, hello("bad"), nil)
		<-bad.done
		if bad.code() != codes.DataLoss || !strings.Contains(bad.err.Error(), "/slicer/jobs/x") {
			t.Errorf("a corrupt record: %v", bad.err)
		}
		c.expect(b, "whole", "delta")
	})
}

func TestJobsWithoutSubscribersAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 10)
		m.write(a)
		_, cc := start(t, m)
		synctest.Wait()
		before := m.readCount()
		for range 60 {
			a = assigned(t, a, "web", 7, a.Generation()+1, 10)
			m.write(a)
			time.Sleep(time.Second)
		}
		if n := m.readCount() - before; n < 5 || n > 7 {
			t.Errorf("read %d times in a minute", n)
		}
		a = assigned(t, a, "web", 7, a.Generation()+1, 10)
		m.write(a)
		c := subscribe(t, cc, hello("web"), nil)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.a == nil || c.a.Generation() != a.Generation() {
			t.Errorf("holds %v", c.a)
		}
	})
}

func TestBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 10)
		m.write(a)
		_, cc := start(t, m)
		good := subscribe(t, cc, hello("web"), nil)
		negative := hello("web")
		negative.Generation = -4
		for name, h := range map[string]*slicerv1.Hello{
			"job with a slash": hello("a/b"), "no job": hello(""), "no role": {Job: "web"}, "role 7": {Job: "web", Role: 7}, "role -7": {Job: "web", Role: -7},
			"negative generation": negative,
		} {
			if c := subscribe(t, cc, h, nil); c.code() != codes.InvalidArgument {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		for name, r := range map[string]*slicerv1.WatchRequest{
			"second hello": {Message: &slicerv1.WatchRequest_Hello{Hello: hello("web")}}, "nothing": {},
		} {
			c := subscribe(t, cc, hello("web"), nil)
			c.stream.Send(r)
			if c.code() != codes.InvalidArgument {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		slicelet := subscribe(t, cc, &slicerv1.Hello{Job: "web", Role: slicerv1.Role_ROLE_SLICELET}, nil)
		slicelet.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: &slicerv1.Report{}}})
		slicelet.expect(a, "whole") // its reports are passed over
		mute, err := slicerv1.NewSubscriberServiceClient(cc).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mute.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("no hello: %v", err)
		}
		good.expect(a, "whole")
	})
}

func TestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		m.put("empty")
		a := assigned(t, nil, "web", 7, 10, 100_000)
		b := assigned(t, a, "web", 7, 12, 100_000)
		m.write(a)
		m.write(b)
		s, cc := start(t, m)
		fetch := func(job string, g int64) (*assignment.Assignment, error) {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: job, Generation: g})
			if err != nil {
				t.Fatal(err)
			}
			var asm wire.Assembler
			for {
				r, err := stream.Recv()
				if err != nil {
					return nil, err
				}
				if tr := r.GetTrailer(); tr != nil {
					return asm.Finish(tr, nil)
				}
				asm.Add(r.GetChunk())
			}
		}
		for _, c := range []struct {
			job  string
			g    int64
			want *assignment.Assignment
			code codes.Code
		}{
			{"web", 0, b, codes.OK}, {"web", 12, b, codes.OK}, {"web", 10, a, codes.OK}, {"web", 11, nil, codes.NotFound},
			{"empty", 0, nil, codes.NotFound}, {"none", 0, nil, codes.NotFound}, {"a/b", 0, nil, codes.InvalidArgument}, {"web", -1, nil, codes.InvalidArgument},
		} {
			got, err := fetch(c.job, c.g)
			if status.Code(err) != c.code || c.want != nil && (got == nil || got.Checksum() != c.want.Checksum()) {
				t.Errorf("%s %d: %v, %v", c.job, c.g, got, err)
			}
		}
		// Close does not wait for a client that does not read.
		stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: "web"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Close()
		for err == nil {
			_, err = stream.Recv()
		}
		if _, err := fetch("web", 0); status.Code(err) != codes.Unavailable {
			t.Errorf("after Close: %v", err)
		}
		if s.Ready() == nil {
			t.Error("ready after Close")
		}
	})
}

func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		_, cc := start(t, m)
		c := slicerv1.NewAdminServiceClient(cc)
		ctx := t.Context()
		if r, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "web"}); err != nil || r.Job.Version != 1 || r.Job.Config.Name != "web" {
			t.Errorf("get: %v, %v", r, err)
		}
		if r, err := c.ListJobs(ctx, &slicerv1.ListJobsRequest{}); err != nil || len(r.Jobs) != 1 {
			t.Errorf("list: %v, %v", r, err)
		}
		_, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "none"})
		expect := func(what string, err error, code codes.Code) {
			t.Helper()
			if status.Code(err) != code {
				t.Errorf("%s: %v", what, err)
			}
		}
		expect("get what there is not", err, codes.NotFound)
		_, err = c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "a/b"})
		expect("get a bad name", err, codes.InvalidArgument)
		_, err = c.PutJob(ctx, &slicerv1.PutJobRequest{})
		expect("put", err, codes.Unimplemented)
		_, err = c.DeleteJob(ctx, &slicerv1.DeleteJobRequest{})
		expect("delete", err, codes.Unimplemented)
		_, err = c.DrainTask(ctx, &slicerv1.DrainTaskRequest{})
		expect("drain", err, codes.Unimplemented)
		_, err = c.InspectJob(ctx, &slicerv1.InspectJobRequest{})
		expect("inspect", err, codes.Unimplemented)
		m.fail(store.ErrUnavailable)
		_, err = c.ListJobs(ctx, &slicerv1.ListJobsRequest{})
		expect("list without a store", err, codes.Unavailable)
	})
}

func TestNewIsPrecise(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Store") {
		t.Errorf("no store: %v", err)
	}
	reg := prometheus.NewRegistry()
	for range 2 {
		s, err := New(Config{Store: newMemStore(), Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
}
