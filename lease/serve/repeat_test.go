package serve_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// tap counts watches and what they send, and loses what a test wants lost.
type tap struct {
	mu      sync.Mutex
	watches int
	sent    int
	deaf    int // up to this watch, nothing arrives
}

func (p *tap) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod != slicerv1.LeaseService_WatchRecords_FullMethodName {
		return handle(srv, s)
	}
	p.mu.Lock()
	p.watches++
	n := p.watches
	p.mu.Unlock()
	return handle(srv, tapped{s, p, n})
}

type tapped struct {
	grpc.ServerStream
	p *tap
	n int
}

func (s tapped) SendMsg(m any) error {
	s.p.mu.Lock()
	lost := s.n <= s.p.deaf
	s.p.sent++
	s.p.mu.Unlock()
	if lost {
		return nil
	}
	return s.ServerStream.SendMsg(m)
}

func (p *tap) count() (watches, sent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches, p.sent
}

// Renewals over a stream stand for the repetition of what watches have told: a watch says
// nothing while nothing changes, and goes on. Where what it says is lost, its reader,
// which renews, finds that out all the same and watches anew. Without renewals it repeats.
func TestRenewalsStandForRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const job, ttl = "job", 9 * time.Second
		start := time.Now()
		clock := func() time.Duration { return time.Since(start) }
		s := openFor(t, &memory{}, clock, &durations{jobs: map[string]time.Duration{job: time.Minute}}, true)
		p, e := &tap{}, &exchange{cut: map[string]chan struct{}{}}
		srv := grpc.NewServer(grpc.StreamInterceptor(p.stream))
		s.Register(srv)
		var wg sync.WaitGroup
		lis := e.listen()
		wg.Go(func() { _ = srv.Serve(lis) })
		conn, err := grpc.NewClient("passthrough:///store", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(e.dial("10.0.1.1")))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { conn.Close(); srv.Stop(); s.Close(); wg.Wait() }()

		lead(t, s, job)
		session, err := remote.New(conn).OpenReader(t.Context(), ttl, job)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { // as a lease.Reader does
			for wait(ctx, ttl/3) {
				if err := session.KeepAlive(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("KeepAlive: %v", err)
				}
			}
		})
		seen := make(chan lease.Seen, 16)
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := session.Watch(ctx, job)
				if err != nil {
					continue
				}
				for err == nil {
					var now lease.Seen
					if now, err = r.Next(ctx); err == nil {
						seen <- now
					}
				}
				r.Close()
			}
		})
		<-seen
		time.Sleep(2 * time.Minute)
		if watches, sent := p.count(); watches != 1 || sent > 3 {
			t.Errorf("two minutes with renewals: %d watches have told something %d times, want one that did so at its beginning", watches, sent)
		}

		p.mu.Lock()
		p.deaf = p.watches
		p.mu.Unlock()
		w, err := s.OpenWriter(t.Context(), lease.MaxTTL)
		if err != nil {
			t.Fatal(err)
		}
		token, err := w.Lead(t.Context(), job)
		if err == nil {
			_, err = lease.Advance(t.Context(), w, lease.Change{Job: job, Token: token, Wanted: 2})
		}
		if err != nil {
			t.Fatal(err)
		}
		lost := time.Now()
		if now := <-seen; now.Guard != (lease.Guard{Generation: 2, Open: true}) {
			t.Errorf("seen %+v", now)
		}
		watches, _ := p.count()
		if took := time.Since(lost); took > 20*time.Second || watches != 2 {
			t.Errorf("what was lost was seen after %s, by %d watches; want another watch within 20 s", took, watches)
		}

		cancel()
		time.Sleep(time.Second)
		c := slicerv1.NewLeaseServiceClient(conn)
		o, err := c.OpenSession(t.Context(), &slicerv1.OpenSessionRequest{TtlMs: 60_000, Jobs: []string{job}})
		if err != nil {
			t.Fatal(err)
		}
		watching, end := context.WithCancel(t.Context())
		defer end()
		stream, err := c.WatchRecords(watching, &slicerv1.WatchRecordsRequest{Session: o.GetSession(), Job: job})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 5 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("told five times in %s without renewals, want each five seconds", took)
		}
	})
}
