package suite

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// leaseTime is what is granted, at most. It is short, since checks wait for its end.
const leaseTime = 2 * time.Second

// leases plays a LeaseService in which the check is the assigner: it sets the records. It has one session
// at a time; another one that is opened takes the place of the one before.
type leases struct {
	slicerv1.UnimplementedLeaseServiceServer
	t *T

	mu      sync.Mutex
	changed chan struct{}
	records *slicerv1.LeaseRecords
	silent  bool // nothing is answered
	holds   bool // claims are not answered
	refuses bool // claims are refused, whatever the records say
	session []byte
	granted time.Duration // to the session
	opened  []*slicerv1.OpenSessionRequest
	renewed []time.Time // when the renewals that were answered arrived, that of the opening first
	calls   []claimCall
}

// claimCall is one of AcquireClaim or ReleaseClaim, in the order in which they arrive.
type claimCall struct {
	release  bool
	from, to int64
	acquired bool
}

func newLeases(t *T) *leases {
	return &leases{t: t, changed: make(chan struct{}), records: &slicerv1.LeaseRecords{Revision: 1}}
}

func (l *leases) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updateLocked(f)
}

func (l *leases) updateLocked(f func()) {
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// set changes the records.
func (l *leases) set(change func(*slicerv1.LeaseRecords)) {
	l.update(func() {
		r := &slicerv1.LeaseRecords{
			Revision: l.records.GetRevision() + 1, Guard: l.records.GetGuard(), GuardOpen: l.records.GetGuardOpen(),
			BridgeFrom: l.records.GetBridgeFrom(), BridgeTo: l.records.GetBridgeTo(), BridgeOpen: l.records.GetBridgeOpen(),
		}
		change(r)
		l.records = r
		l.t.note("leases: %s", show(r))
	})
}

// guard sets the guard to an assignment's generation, open.
func (l *leases) guard(a *assignment.Assignment) {
	l.set(func(r *slicerv1.LeaseRecords) { r.Guard, r.GuardOpen = int64(a.Generation()), true })
}

// until waits until look, which is called with l.mu held, is true, and blames the implementation
// otherwise.
func (l *leases) until(want string, look func() bool) {
	timer := time.NewTimer(l.t.patience)
	defer timer.Stop()
	for {
		l.mu.Lock()
		ok, changed, saw := look(), l.changed, fmt.Sprintf("%d sessions opened, %d renewals, claims %+v", len(l.opened), len(l.renewed), l.calls)
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			l.t.fault(fmt.Sprintf("%s within %s", want, l.t.patience), saw)
		}
	}
}

// find is the place of a call among those that have arrived, -1 if there is none. l.mu is held.
func (l *leases) find(release bool, from, to *assignment.Assignment) int {
	for i, c := range l.calls {
		if c.release == release && c.to == int64(to.Generation()) && (from == nil && c.from == 0 || from != nil && c.from == int64(from.Generation())) {
			return i
		}
	}
	return -1
}

// answers waits while nothing is answered.
func (l *leases) answers(ctx context.Context, waits func() bool) error {
	for {
		l.mu.Lock()
		wait, changed := l.silent || waits != nil && waits(), l.changed
		l.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// knownLocked reports whether a call is that of the session.
func (l *leases) knownLocked(session []byte) error {
	if len(session) == 0 || string(session) != string(l.session) {
		return status.Error(codes.NotFound, "there is no such session")
	}
	return nil
}

// OpenSession is LeaseService's, and so are the others.
func (l *leases) OpenSession(ctx context.Context, q *slicerv1.OpenSessionRequest) (*slicerv1.OpenSessionResponse, error) {
	l.t.note("leases get OpenSession %s", show(q))
	at := time.Now()
	if err := l.answers(ctx, nil); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updateLocked(func() {
		l.session = make([]byte, 16)
		_, _ = rand.Read(l.session)
		l.granted = min(leaseTime, max(time.Duration(q.GetTtlMs())*time.Millisecond, time.Second))
		l.opened, l.renewed = append(l.opened, q), append(l.renewed, at)
	})
	return &slicerv1.OpenSessionResponse{Session: l.session, TtlMs: l.granted.Milliseconds(), Jobs: q.GetJobs()}, nil
}

func (l *leases) JoinJob(ctx context.Context, q *slicerv1.JoinJobRequest) (*slicerv1.JoinJobResponse, error) {
	if err := l.answers(ctx, nil); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &slicerv1.JoinJobResponse{}, l.knownLocked(q.GetSession())
}

func (l *leases) RenewSession(ctx context.Context, q *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	at := time.Now()
	if err := l.answers(ctx, nil); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.knownLocked(q.GetSession()); err != nil {
		l.t.note("leases: the renewal of a session that is not known")
		return nil, err
	}
	l.updateLocked(func() { l.renewed = append(l.renewed, at) })
	return &slicerv1.RenewSessionResponse{TtlMs: l.granted.Milliseconds()}, nil
}

func (l *leases) CloseSession(_ context.Context, q *slicerv1.CloseSessionRequest) (*slicerv1.CloseSessionResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.knownLocked(q.GetSession()) == nil {
		l.updateLocked(func() { l.session = nil })
	}
	return &slicerv1.CloseSessionResponse{}, nil
}

func (l *leases) AcquireClaim(ctx context.Context, q *slicerv1.AcquireClaimRequest) (*slicerv1.AcquireClaimResponse, error) {
	l.t.note("leases get AcquireClaim %s", show(q.GetClaim()))
	n := -1
	l.update(func() {
		n = len(l.calls)
		l.calls = append(l.calls, claimCall{from: q.GetClaim().GetFrom(), to: q.GetClaim().GetTo()})
	})
	if err := l.answers(ctx, func() bool { return l.holds }); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.knownLocked(q.GetSession()); err != nil {
		return nil, err
	}
	r, c := l.records, q.GetClaim()
	grants := c.GetFrom() == 0 && r.GetGuardOpen() && r.GetGuard() == c.GetTo() ||
		c.GetFrom() != 0 && r.GetBridgeOpen() && r.GetBridgeFrom() == c.GetFrom() && r.GetBridgeTo() == c.GetTo()
	acquired := grants && !l.refuses
	l.updateLocked(func() { l.calls[n].acquired = acquired })
	return &slicerv1.AcquireClaimResponse{Acquired: acquired, Records: r}, nil
}

func (l *leases) ReleaseClaim(ctx context.Context, q *slicerv1.ReleaseClaimRequest) (*slicerv1.ReleaseClaimResponse, error) {
	l.t.note("leases get ReleaseClaim %s", show(q.GetClaim()))
	l.update(func() {
		l.calls = append(l.calls, claimCall{release: true, from: q.GetClaim().GetFrom(), to: q.GetClaim().GetTo()})
	})
	if err := l.answers(ctx, nil); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &slicerv1.ReleaseClaimResponse{}, l.knownLocked(q.GetSession())
}

func (l *leases) WatchRecords(q *slicerv1.WatchRecordsRequest, stream grpc.ServerStreamingServer[slicerv1.WatchRecordsResponse]) error {
	repeat := time.NewTicker(time.Second)
	defer repeat.Stop()
	for {
		if err := l.answers(stream.Context(), nil); err != nil {
			return err
		}
		l.mu.Lock()
		r, changed, err := l.records, l.changed, l.knownLocked(q.GetSession())
		l.mu.Unlock()
		if err == nil {
			err = stream.Send(&slicerv1.WatchRecordsResponse{Records: r})
		}
		if err != nil {
			return err
		}
		for same := true; same; {
			select {
			case <-changed:
			case <-repeat.C:
				same = false
			case <-stream.Context().Done():
				return nil
			}
			l.mu.Lock()
			same, changed = same && l.records == r && l.knownLocked(q.GetSession()) == nil, l.changed
			l.mu.Unlock()
		}
	}
}

func leaseChecks() []Check {
	return []Check{
		{Name: "lease", Ref: refLeases, run: checkLease,
			Text: "In consistent mode a slicelet opens a session that names its job and its task, claims the guard, and owns what the guard's assignment gives it once the claim is granted, not before. All checks of leases are optional."},
		{Name: "lease-refused", Ref: refLeases, run: checkLeaseRefused,
			Text: "A task whose claim is refused owns nothing."},
		{Name: "lease-generation", Ref: refLeases, run: checkLeaseGeneration,
			Text: "A task owns what the guard's generation gives it, whatever newer assignment it holds."},
		{Name: "lease-fetch", Ref: refLeases, run: checkLeaseFetch,
			Text: "The assignment of a guard that the stream has not brought is got by Fetch, and only that generation will do."},
		{Name: "lease-change", Ref: refLeases, run: checkLeaseChange,
			Text: "A change takes the task over the bridge: keys that stay are owned all along, those that move are not from before the guard is released, and what is recalled is released."},
		{Name: "lease-renew", Ref: refLeases, run: checkLeaseRenew, timed: true,
			Text: "One session is renewed before its lease time is over, again and again."},
		{Name: "lease-expiry", Ref: refLeases, run: checkLeaseExpiry,
			Text: "A task owns nothing once its lease time has passed since it asked for the last renewal that was answered, and owns again with a new session."},
		{Name: "lease-lost", Ref: refLeases, run: checkLeaseLost, timed: true,
			Text: "A task whose session is not known any more owns nothing, at once, and opens another."},
	}
}

// leased starts the slicelet of a job in consistent mode, and gives it the first of three assignments.
func (t *T) leased() (s *session, w *watch, l *leases, all []*assignment.Assignment) {
	d := t.server("A")
	s = t.start(startConfig{distributors: []*server{d}, leases: []*server{d}})
	w = d.accept()
	m := greeting()
	m.Mode = slicerv1.Mode_MODE_CONSISTENT
	w.status(m)
	all = storyOf(w).chain(3)
	w.put(all[0])
	w.wantTaken(all[0], "an assignment of a job in consistent mode")
	return s, w, d.leases, all
}

// comesToOwn expects the task to own what an assignment gives it before long.
func (s *session) comesToOwn(a *assignment.Assignment, when string) {
	s.t.eventually(fmt.Sprintf("a task that owns what generation %s gives it %s", generationOf(a), when), func() (bool, string) {
		saw := s.ownership(a, probes())
		return saw == "", saw
	})
}

// stays expects that for a while.
func (s *session) stays(a *assignment.Assignment, when string) {
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		s.owned(a, when)
	}
}

func checkLease(t *T) {
	s, _, l, all := t.leased()
	l.until("OpenSession", func() bool { return len(l.opened) > 0 })
	l.mu.Lock()
	q := l.opened[0]
	l.mu.Unlock()
	if got := q.GetTtlMs(); got < 1000 || got > 600_000 {
		t.fault("a lease time of 1 s to 10 min asked for", fmt.Sprintf("ttl_ms %d", got))
	}
	if len(q.GetJobs()) != 1 || q.GetJobs()[0] != job || q.GetTasks()[job] != me {
		t.fault(fmt.Sprintf("a session for job %s as task %s", job, me), show(q))
	}
	s.stays(nil, "while there is no guard")
	l.update(func() { l.holds = true })
	l.guard(all[0])
	l.until("a claim of the guard", func() bool { return l.find(false, nil, all[0]) >= 0 })
	s.stays(nil, "while the claim is not granted")
	l.update(func() { l.holds = false })
	s.comesToOwn(all[0], "once the claim of the guard is granted")
}

func checkLeaseRefused(t *T) {
	s, _, l, all := t.leased()
	l.update(func() { l.refuses = true })
	l.guard(all[0])
	l.until("a claim of the guard", func() bool { return l.find(false, nil, all[0]) >= 0 })
	s.stays(nil, "while its claims are refused")
	l.update(func() { l.refuses = false })
	l.set(func(*slicerv1.LeaseRecords) {}) // seen anew
	s.comesToOwn(all[0], "once the claim of the guard is granted")
}

func checkLeaseGeneration(t *T) {
	s, w, l, all := t.leased()
	l.guard(all[0])
	s.comesToOwn(all[0], "under the guard")
	w.delta(all[0], all[1])
	w.wantTaken(all[1], "a newer assignment, which is not in force")
	s.stays(all[0], "while the guard is of its generation")
}

func checkLeaseFetch(t *T) {
	s, w, l, all := t.leased()
	w.put(all[2])
	w.wantTaken(all[2], "a newer assignment")
	// One that the stream has not brought, nor the start.
	w.s.serve(all[2])
	l.guard(all[1])
	t.eventually(fmt.Sprintf("a Fetch of generation %d, which the guard names", all[1].Generation()), func() (bool, string) {
		last := w.s.fetched()
		return last != nil && last.GetJob() == job && last.GetGeneration() == int64(all[1].Generation()), fmt.Sprintf("%v as the last one", last)
	})
	s.stays(nil, "while Fetch answers with another generation than the guard's")
	w.s.serve(all[1])
	s.comesToOwn(all[1], "once Fetch has answered")
}

func checkLeaseChange(t *T) {
	s, w, l, all := t.leased()
	a := all[0]
	l.guard(a)
	s.comesToOwn(a, "under the guard")
	// Of the task's two slices one stays.
	b := storyOf(w).assign(a, slicesOf(8, func(i int) []uint32 {
		if i > 3 {
			return turned(1)(i)
		}
		return turned(0)(i)
	}))
	w.delta(a, b)
	w.wantTaken(b, "a newer assignment")
	both := func(key string) bool { return owns(a, me, key) && owns(b, me, key) }
	keep := func(when string) {
		for i, owned := range s.owns(probes()) {
			if key := probes()[i]; both(key) && !owned {
				t.fault(fmt.Sprintf("key %q owned %s, as it stays", key, when), "owned=false")
			}
		}
	}
	l.set(func(r *slicerv1.LeaseRecords) {
		r.BridgeFrom, r.BridgeTo, r.BridgeOpen = int64(a.Generation()), int64(b.Generation()), true
	})
	l.until("a claim of the bridge", func() bool { i := l.find(false, a, b); return i >= 0 && l.calls[i].acquired })
	keep("under the bridge")
	l.set(func(r *slicerv1.LeaseRecords) { r.GuardOpen = false })
	l.until("the release of the guard, which is recalled", func() bool { return l.find(true, nil, a) >= 0 })
	// From before the release was sent.
	for i, owned := range s.owns(probes()) {
		if key := probes()[i]; owned && !both(key) {
			t.fault(fmt.Sprintf("key %q, which moves, not owned when the guard is released", key), "owned=true")
		}
	}
	keep("when the guard is released")
	l.mu.Lock()
	bridged, released := l.find(false, a, b), l.find(true, nil, a)
	l.mu.Unlock()
	if released < bridged {
		t.fault("the bridge held before the guard is released", "the release first")
	}
	l.guard(b)
	s.comesToOwn(b, "under the next guard")
	l.set(func(r *slicerv1.LeaseRecords) { r.BridgeOpen = false })
	l.until("the release of the bridge, which is recalled", func() bool { return l.find(true, a, b) >= 0 })
	s.owned(b, "under the next guard, with the bridge released")
}

func checkLeaseRenew(t *T) {
	s, _, l, all := t.leased()
	l.guard(all[0])
	s.comesToOwn(all[0], "under the guard")
	time.Sleep(3 * leaseTime)
	l.mu.Lock()
	opened, renewed, granted := len(l.opened), append(l.renewed[:len(l.renewed):len(l.renewed)], time.Now()), l.granted
	l.mu.Unlock()
	for i := range renewed[1:] {
		if gap := renewed[i+1].Sub(renewed[i]); gap > granted {
			t.fault(fmt.Sprintf("renewals before %s are over", granted), fmt.Sprintf("none for %s", gap.Round(time.Millisecond)))
		}
	}
	if opened != 1 {
		t.fault("one session, which is renewed", fmt.Sprintf("%d sessions", opened))
	}
	s.owned(all[0], "while its session is renewed")
}

func checkLeaseExpiry(t *T) {
	s, _, l, all := t.leased()
	l.guard(all[0])
	s.comesToOwn(all[0], "under the guard")
	var over time.Time
	l.update(func() { l.silent, over = true, l.renewed[len(l.renewed)-1].Add(l.granted) })
	time.Sleep(time.Until(over))
	s.stays(nil, "after its lease time has passed")
	l.update(func() { l.silent, l.session = false, nil })
	s.comesToOwn(all[0], "with a new session")
}

func checkLeaseLost(t *T) {
	s, _, l, all := t.leased()
	l.guard(all[0])
	s.comesToOwn(all[0], "under the guard")
	var sessions int
	l.update(func() { l.session, sessions = nil, len(l.opened) })
	asked := time.Now()
	t.eventually("a task that owns nothing, as its session is lost", func() (bool, string) {
		saw := s.ownership(nil, probes())
		return saw == "", saw
	})
	// It learns of the loss with its next renewal, a third of the lease time later; where it learned
	// nothing the lease would be over at the end.
	if took := time.Since(asked); took > leaseTime*7/10 {
		t.fault(fmt.Sprintf("that it owns nothing as soon as a renewal says that the session is lost, about %s after the loss", leaseTime/3), fmt.Sprintf("after %s", took.Round(time.Millisecond)))
	}
	l.until("another session", func() bool { return len(l.opened) > sessions })
	s.comesToOwn(all[0], "with another session")
}
