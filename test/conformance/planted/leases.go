package planted

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// leaseTTL is the lease time asked for.
const leaseTTL = 5 * time.Second

// claim is what is held for reading: the guard at a generation, where from is 0, or a bridge.
type claim struct{ from, to assignment.Generation }

// leases are a task's end of them in consistent mode: one session after the other.
type leases struct {
	p      *subscriber
	client slicerv1.LeaseServiceClient

	mu      sync.Mutex
	session []byte
	ttl     time.Duration
	// deadline is when the lease time is over since the last renewal that was answered was asked for.
	deadline      time.Time
	records       *slicerv1.LeaseRecords
	guard, bridge claim                                            // held; the zero value for none
	hands         map[assignment.Generation]*assignment.Assignment // that claims name
}

// hold has leases until ctx ends.
func (l *leases) hold(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.open(ctx); err == nil {
			l.keep(ctx)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (l *leases) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTTL)
	defer cancel()
	sent := time.Now()
	job := l.p.cfg.Job
	q := &slicerv1.OpenSessionRequest{TtlMs: leaseTTL.Milliseconds(), Jobs: []string{job}, Tasks: map[string]string{job: l.p.cfg.Task}}
	if l.p.has("unnamed-session") {
		q.Tasks = nil
	}
	r, err := l.client.OpenSession(ctx, q)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.ttl = r.GetSession(), time.Duration(r.GetTtlMs())*time.Millisecond
	l.deadline, l.records, l.guard, l.bridge = sent.Add(l.ttl), nil, claim{}, claim{}
	return nil
}

// keep renews the session, and does what its records call for, until it is lost.
func (l *leases) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wake := make(chan struct{}, 1)
	wg.Go(func() { l.watch(ctx, wake) })
	wg.Go(func() {
		for ctx.Err() == nil {
			l.step(ctx)
			select {
			case <-wake:
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	for l.renew(ctx) {
	}
	cancel()
	wg.Wait()
	if l.p.has("ignores-lost") || l.p.has("outlives-lease") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guard, l.bridge = claim{}, claim{}
}

// renew reports whether the session goes on.
func (l *leases) renew(ctx context.Context) bool {
	pause := l.ttl / 3
	if l.p.has("renews-late") {
		pause = l.ttl * 5 / 4
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return false
	}
	sent := time.Now()
	call, cancel := context.WithTimeout(ctx, l.ttl/4)
	defer cancel()
	r, err := l.client.RenewSession(call, &slicerv1.RenewSessionRequest{Session: l.session})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.deadline = sent.Add(time.Duration(r.GetTtlMs()) * time.Millisecond)
		return true
	case status.Code(err) == codes.NotFound && l.p.has("ignores-lost"):
		return true
	}
	return status.Code(err) != codes.NotFound && time.Now().Before(l.deadline)
}

func (l *leases) watch(ctx context.Context, wake chan struct{}) {
	for ctx.Err() == nil {
		w, err := l.client.WatchRecords(ctx, &slicerv1.WatchRecordsRequest{Job: l.p.cfg.Job, Session: l.session})
		for err == nil {
			var m *slicerv1.WatchRecordsResponse
			if m, err = w.Recv(); err == nil {
				l.mu.Lock()
				l.records = m.GetRecords()
				l.mu.Unlock()
				notify(wake)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// step does what the records call for. The bridge is held before the guard goes, and the guard before
// the bridge goes.
func (l *leases) step(ctx context.Context) {
	l.mu.Lock()
	r, guard, bridge := l.records, l.guard, l.bridge
	l.mu.Unlock()
	if r == nil {
		return
	}
	recalled := guard != (claim{}) && !(r.GetGuardOpen() && r.GetGuard() == int64(guard.to))
	if l.p.has("breaks-first") && r.GetBridgeOpen() && bridge == (claim{}) && guard != (claim{}) {
		l.release(ctx, guard, func() { l.guard = claim{} })
		guard, recalled = claim{}, false
	}
	if over := (claim{assignment.Generation(r.GetBridgeFrom()), assignment.Generation(r.GetBridgeTo())}); r.GetBridgeOpen() && bridge != over {
		if l.fetch(ctx, over.from) && l.fetch(ctx, over.to) {
			l.acquire(ctx, over, func() { l.bridge = over })
		}
	}
	if recalled && !l.p.has("no-release") {
		l.release(ctx, guard, func() { l.guard = claim{} })
	}
	if next := (claim{to: assignment.Generation(r.GetGuard())}); r.GetGuardOpen() && guard != next {
		if l.p.has("serves-unclaimed") && l.fetch(ctx, next.to) {
			l.mu.Lock()
			l.guard = next
			l.mu.Unlock()
		}
		if l.fetch(ctx, next.to) {
			l.acquire(ctx, next, func() { l.guard = next })
		}
	}
	l.mu.Lock()
	guard = l.guard
	l.mu.Unlock()
	if bridge != (claim{}) && guard != (claim{}) && !(r.GetBridgeOpen() && r.GetBridgeTo() == int64(bridge.to)) {
		l.release(ctx, bridge, func() { l.bridge = claim{} })
	}
}

func (c claim) proto() *slicerv1.Claim { return &slicerv1.Claim{From: int64(c.from), To: int64(c.to)} }

func (l *leases) acquire(ctx context.Context, c claim, held func()) {
	r, err := l.client.AcquireClaim(ctx, &slicerv1.AcquireClaimRequest{Job: l.p.cfg.Job, Session: l.session, Claim: c.proto()})
	if err != nil || !r.GetAcquired() && !l.p.has("serves-refused") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held()
}

// release ends belief, and then lets others go on.
func (l *leases) release(ctx context.Context, c claim, gone func()) {
	if !l.p.has("serves-moving") {
		l.mu.Lock()
		gone()
		l.mu.Unlock()
	}
	_, _ = l.client.ReleaseClaim(ctx, &slicerv1.ReleaseClaimRequest{Job: l.p.cfg.Job, Session: l.session, Claim: c.proto()})
}

// fetch sees to it that an assignment is in hand.
func (l *leases) fetch(ctx context.Context, g assignment.Generation) bool {
	l.p.mu.Lock()
	held := l.p.held
	l.p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hands[g] == nil && held != nil && held.Generation() == g {
		l.hands[g] = held
	}
	if l.hands[g] != nil {
		return true
	}
	a, err := l.p.fetch(ctx, g)
	if err == nil {
		l.hands[g] = a
	}
	return err == nil
}

// fetch gets an assignment without a stream.
func (p *subscriber) fetch(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := dial(p.cfg.Distributors[0])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	q := &slicerv1.FetchRequest{Job: p.cfg.Job, Generation: int64(g)}
	if p.has("fetches-newest") {
		q.Generation = 0
	}
	stream, err := slicerv1.NewSubscriberServiceClient(conn).Fetch(ctx, q)
	if err != nil {
		return nil, err
	}
	var data []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if t := m.GetTrailer(); t != nil {
			a, err := p.decode(data, t, nil)
			if err == nil && a.Generation() != g && !p.has("any-fetch") {
				err = fmt.Errorf("generation %d, want %d", a.Generation(), g)
			}
			return a, err
		}
		data = append(data, m.GetChunk().GetData()...)
	}
}

// ownsLocked reports whether the leases that are held give the task a key. p.mu is held.
func (l *leases) ownsLocked(k assignment.SliceKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.deadline) && !l.p.has("outlives-lease") && !l.p.has("ignores-lost") {
		return false
	}
	owns := func(g assignment.Generation) bool { return l.hands[g] != nil && l.p.mine(l.hands[g].Lookup(k)) }
	switch {
	case l.guard != (claim{}) && l.p.has("serves-newest"):
		return l.p.mine(l.p.held.Lookup(k))
	case l.guard != (claim{}):
		return owns(l.guard.to)
	case l.bridge != (claim{}):
		return owns(l.bridge.from) && owns(l.bridge.to)
	}
	return false
}
