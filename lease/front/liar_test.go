package front_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// liar is a front that does all that may go wrong with one: it answers late, or not,
// renews twice, carries out late what it has given up, and tells of records that are old.
type liar struct {
	slicerv1.UnimplementedLeaseServiceServer
	to     slicerv1.LeaseServiceClient
	honest atomic.Bool
	late   time.Duration // at most
	ctx    context.Context
	wg     sync.WaitGroup

	mu   sync.Mutex
	rng  *rand.Rand
	told []*slicerv1.WatchRecordsResponse
	lies int
}

func newLiar(t *testing.T, to *served, seed uint64, late time.Duration) (*liar, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &liar{to: slicerv1.NewLeaseServiceClient(dial(t, to.relay.Address())), late: late, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 3))}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	slicerv1.RegisterLeaseServiceServer(s, l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(lis); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); s.Stop(); <-done; l.wg.Wait() })
	return l, lis.Addr().String()
}

// draw is true once in n times.
func (l *liar) draw(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.honest.Load() || l.rng.IntN(n) > 0 {
		return false
	}
	l.lies++
	return true
}

func (l *liar) wait(ctx context.Context) {
	l.mu.Lock()
	d := time.Duration(l.rng.Int64N(int64(l.late)))
	l.mu.Unlock()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// spoil makes a call as it should be, or spoils it.
func spoil[Q, R any](l *liar, ctx context.Context, q *Q, call func(context.Context, *Q, ...grpc.CallOption) (*R, error)) (*R, error) {
	gaveUp := status.Error(codes.Unavailable, "given up")
	switch {
	case l.draw(8): // late
		l.wait(ctx)
		return call(ctx, q)
	case l.draw(8): // carried out, and answered late
		r, err := call(ctx, q)
		l.wait(ctx)
		return r, err
	case l.draw(12): // carried out, and not answered
		_, _ = call(ctx, q)
		return nil, gaveUp
	case l.draw(12): // given up, and carried out late
		l.wg.Go(func() {
			l.wait(l.ctx)
			_, _ = call(l.ctx, q)
		})
		return nil, gaveUp
	}
	return call(ctx, q)
}

func (l *liar) OpenSession(ctx context.Context, q *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	return spoil(l, ctx, q, l.to.OpenSession)
}

func (l *liar) JoinJob(ctx context.Context, q *slicerv1.JoinJobRequest) (*slicerv1.JoinJobResponse, error) {
	return spoil(l, ctx, q, l.to.JoinJob)
}

func (l *liar) RenewSession(ctx context.Context, q *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	if l.draw(8) { // twice
		if _, err := l.to.RenewSession(ctx, q); err != nil {
			return nil, err
		}
	}
	return spoil(l, ctx, q, l.to.RenewSession)
}

// RenewSessions spoils renewals as calls, and gives answers again that it has given.
func (l *liar) RenewSessions(stream grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse]) error {
	var last *slicerv1.RenewSessionsResponse
	for {
		q, err := stream.Recv()
		if err != nil {
			return err
		}
		if last != nil && l.draw(8) {
			if err := stream.Send(last); err != nil {
				return err
			}
		}
		r, err := l.RenewSession(stream.Context(), q.GetRenewal())
		if err != nil {
			return err
		}
		last = &slicerv1.RenewSessionsResponse{Number: q.GetNumber(), Renewal: r}
		if err := stream.Send(last); err != nil {
			return err
		}
	}
}

func (l *liar) CloseSession(ctx context.Context, q *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	return l.to.CloseSession(ctx, q)
}

func (l *liar) AcquireClaim(ctx context.Context, q *slicerv1.AcquireClaimRequest) (*slicerv1.AcquireClaimResponse, error) {
	return spoil(l, ctx, q, l.to.AcquireClaim)
}

func (l *liar) ReleaseClaim(ctx context.Context, q *slicerv1.ReleaseClaimRequest) (*slicerv1.ReleaseClaimResponse, error) {
	return spoil(l, ctx, q, l.to.ReleaseClaim)
}

// WatchRecords tells of what has been now and then, and holds up what is.
func (l *liar) WatchRecords(q *slicerv1.WatchRecordsRequest, stream grpc.ServerStreamingServer[slicerv1.WatchRecordsResponse]) error {
	up, err := l.to.WatchRecords(stream.Context(), q)
	if err != nil {
		return err
	}
	for {
		r, err := up.Recv()
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.told = append(l.told, r)
		old := l.told[l.rng.IntN(len(l.told))]
		l.mu.Unlock()
		if l.draw(4) {
			if err := stream.Send(old); err != nil {
				return err
			}
		}
		if l.draw(6) {
			l.wait(stream.Context())
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
}

// Tasks hold their leases by way of fronts that do whatever a front may do wrong, and that
// die and are cut off from etcd besides. No key has two owners, and when all is well again
// changes are carried out.
func TestWhatAFrontCanBreak(t *testing.T) {
	t.Parallel()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 4))
	const ttl, tasks = 2 * time.Second, 4
	endpoints := etcdtest.Start(t)
	b := newBed(t, endpoints, 2)
	relay := etcdtest.NewRelay(t, endpoints[0])
	b.cfg.Endpoints = []string{relay.Address()}
	var liars []*liar
	var addrs []string
	for i, f := range b.fronts {
		l, addr := newLiar(t, f, seed+uint64(i), 2*ttl)
		liars, addrs = append(liars, l), append(addrs, addr)
	}
	var readers []lease.Readers
	for range tasks {
		readers = append(readers, remote.New(dial(t, addrs[0]), dial(t, addrs[1])))
	}
	f := newFleet(t, b.direct, ttl, readers...)
	stop := f.look()
	g := assignment.Generation(0)
	for round := range 4 {
		dies := b.fronts[rng.IntN(2)]
		switch round % 4 {
		case 1:
			b.kill(dies)
		case 3:
			relay.Target("")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
		for err := error(nil); err == nil; {
			if _, err = lease.Advance(ctx, f.w, lease.Change{Job: "job", Token: f.token, Wanted: g + 1, Wait: ttl / 4}); err == nil {
				g++
			}
			time.Sleep(50 * time.Millisecond)
		}
		cancel()
		if dies.server == nil {
			b.start(dies)
		}
		relay.Target(endpoints[0])
	}
	lies := 0
	for _, l := range liars {
		l.honest.Store(true)
		l.mu.Lock()
		lies += l.lies
		l.mu.Unlock()
	}
	f.advance(g + 1)
	looks, without := stop()
	t.Logf("%d changes under %d lies, %d looks; tasks believed in nothing %.0f %% of the time", g, lies, looks, 100*float64(without)/float64(looks*tasks))
	if g == 0 || lies == 0 {
		t.Error("this was no test")
	}
}
