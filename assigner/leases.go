package assigner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
)

// errNoLeases: the assigner was given no lease store for this store.
var errNoLeases = errors.New("this assigner has no lease store for it, and serves no jobs in consistent mode")

const (
	// leaseWithin bounds one request to the lease store.
	leaseWithin = 3 * time.Second
	// leaseRetryMax is the longest wait between attempts to open a session: no
	// consistent job gets on without.
	leaseRetryMax = time.Second
	// endWithin bounds the giving back of the session when the assigner closes.
	endWithin = 2 * time.Second
)

// errLong ends a session that jobs with a shorter lease time are to be led under.
var errLong = fmt.Errorf("%w: given back for one with a shorter lease time, as a job's lease_duration asks", lease.ErrLost)

// leaseManager holds the assigner's one session in a store's lease store: opened when
// the first job needs it, renewed, and opened anew when it is lost or lasts for
// longer than the leases of a job that is led under it.
type leaseManager struct {
	s       *storeWatch
	writers lease.Writers // nil if there is none
	ttl     time.Duration // the longest
	wanted  chan struct{} // holds a token when a session is needed
	doubted chan struct{} // holds a token when the session may be lost

	mu      sync.Mutex
	session lease.WriteSession // nil if there is none now
	err     error              // why
	turn    chan struct{}      // closed when session or err change
}

func newLeaseManager(s *storeWatch, w lease.Writers, ttl time.Duration) *leaseManager {
	if w != nil {
		s.a.metrics.lease.lost.WithLabelValues(s.label()) // there from the start, so that the first loss is an increase
	}
	return &leaseManager{s: s, writers: w, ttl: ttl, wanted: make(chan struct{}, 1), doubted: make(chan struct{}, 1), turn: make(chan struct{})}
}

func (k *leaseManager) set(session lease.WriteSession, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session, k.err = session, err
	close(k.turn)
	k.turn = make(chan struct{})
}

// peek is the session, or why there is none. Both are nil when none was needed yet, or
// the first is being opened.
func (k *leaseManager) peek() (lease.WriteSession, error) {
	if k.writers == nil {
		return nil, errNoLeases
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session, k.err
}

// lowest is the lease time that the session is to have: the shortest of the jobs
// that are led under it, so that after a crash each of them is taken over within
// its own.
func (k *leaseManager) lowest() time.Duration {
	ttl := k.ttl
	for _, r := range k.s.a.runners() {
		if d, ok := r.leaseTime(k.s); ok {
			ttl = min(ttl, d)
		}
	}
	return ttl
}

// get waits for a session of at most the lease time that most says, unless the
// last attempt to have one has failed.
func (k *leaseManager) get(ctx context.Context, most func() time.Duration) (lease.WriteSession, error) {
	for {
		k.mu.Lock()
		turn := k.turn
		k.mu.Unlock()
		session, err := k.peek()
		switch {
		case err != nil || session != nil && session.TTL() <= most():
			return session, err
		case session != nil:
			notify(k.doubted)
		default:
			notify(k.wanted)
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no session yet: %w", lease.ErrUnavailable, ctx.Err())
		}
	}
}

// refusal says why jobs in consistent mode cannot be served at all. A store that
// is merely silent just now is no reason.
func (k *leaseManager) refusal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseWithin)
	defer cancel()
	_, err := k.get(ctx, func() time.Duration { return lease.MaxTTL })
	if err == nil || errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrLost) {
		return nil
	}
	return fmt.Errorf("consistent mode: store %s: %w", k.s.label(), err)
}

// run is the manager's goroutine.
func (k *leaseManager) run() {
	select {
	case <-k.wanted:
	case <-k.s.a.ctx.Done():
		return
	}
	k.s.foreverWithin(leaseRetryMax, "hold a lease session", func(ctx context.Context) (progress bool, err error) {
		call, cancel := context.WithTimeout(ctx, leaseWithin)
		session, err := k.writers.OpenWriter(call, k.lowest())
		cancel()
		if err != nil {
			k.suspend(err)
			k.set(nil, err)
			return false, err
		}
		k.s.log.Info("lease session opened", "session", session.ID(), "ttl", session.TTL().String())
		k.set(session, nil)
		err = k.renew(ctx, session)
		if ctx.Err() != nil {
			return true, k.end(session)
		}
		k.suspend(err)
		k.set(nil, nil)
		_ = k.end(session) // what watches for it ends too
		for _, r := range k.s.a.runners() {
			r.lost(k.s, err)
		}
		if errors.Is(err, errLong) {
			k.s.log.Info("lease session is replaced", "session", session.ID(), "error", err)
			return true, nil
		}
		k.s.a.metrics.lease.lost.WithLabelValues(k.s.label()).Inc()
		return true, err
	})
}

// suspend closes a store that has gone back to an earlier state, until the sessions
// of which it does not know have run out. Readers that remember wait by themselves;
// this is for those that have started since.
func (k *leaseManager) suspend(why error) {
	s, ok := k.writers.(lease.Suspender)
	if !ok || !errors.Is(why, lease.ErrWentBack) {
		return
	}
	longest := k.ttl
	for _, r := range k.s.a.runners() {
		longest = max(longest, r.leaseDuration(k.s))
	}
	k.s.log.Error("leases are suspended", "reason", why, "for", longest)
	ctx, cancel := context.WithTimeout(k.s.a.ctx, leaseWithin)
	defer cancel()
	if err := s.Suspend(ctx, longest); err != nil {
		k.s.log.Warn("leases not suspended", "error", err)
	}
}

// renew keeps the session alive until it is lost or ctx ends. Nothing here trusts
// a session to be alive, since every step compares the job lease in the store:
// so one that cannot be reached is not given up before the store says so.
func (k *leaseManager) renew(ctx context.Context, session lease.WriteSession) error {
	third := session.TTL() / 3
	timer := time.NewTimer(third)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.doubted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if k.lowest() < session.TTL() {
			return errLong
		}
		call, cancel := context.WithTimeout(ctx, third)
		err := session.KeepAlive(call)
		cancel()
		switch {
		case err == nil:
			timer.Reset(third)
		case errors.Is(err, lease.ErrLost):
			return err
		case ctx.Err() == nil:
			k.s.log.Warn("lease session not renewed", "error", err)
			timer.Reset(third/8 + rand.N(third/4))
		}
	}
}

// end gives the session back, so that others take its jobs over at once.
func (k *leaseManager) end(session lease.WriteSession) error {
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := session.Close(ctx); err != nil {
		k.s.log.Warn("lease session not given back: it runs out", "error", err)
	}
	return nil
}

// lost tells the job that the session in a store's lease store is gone.
func (r *runner) lost(s *storeWatch, why error) {
	r.mu.Lock()
	home := r.home
	r.mu.Unlock()
	if home == s {
		r.tell(func(c *generate.Core, now generate.Now) { c.Lost(now, why) })
	}
}

// leaseTime is that of a job which this assigner is to lead under its session in
// a store's lease store.
func (r *runner) leaseTime(s *storeWatch) (ttl time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.home != s {
		return 0, false
	}
	return r.viewLocked().LeaseTime()
}

// leaseDuration is that of a consistent job in a store, 0 of any other.
func (r *runner) leaseDuration(s *storeWatch) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, known, exists := r.viewLocked().Job()
	if r.home != s || !known || !exists || job.Config.Mode != assignment.Consistent {
		return 0
	}
	return job.Config.LeaseDuration
}

// lead takes the job lease.
func (r *runner) lead() (lease.Token, error) {
	ctx, cancel := context.WithTimeout(r.a.ctx, leaseWithin)
	defer cancel()
	home := r.whose()
	session, err := home.leases.get(ctx, func() time.Duration {
		if most, ok := r.leaseTime(home); ok {
			return most
		}
		return lease.MaxTTL // it is another assigner's by now
	})
	if err != nil {
		return 0, err
	}
	r.session = session
	token, err := session.Lead(ctx, r.name)
	if errors.Is(err, lease.ErrLost) {
		notify(home.leases.doubted)
	}
	return token, err
}

// resign gives the job lease back. With token 0 it first asks whether it has it.
func (r *runner) resign(token lease.Token) error {
	if r.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.a.ctx, leaseWithin)
	defer cancel()
	if token == 0 {
		t, err := r.session.Lead(ctx, r.name)
		if errors.Is(err, lease.ErrHeld) {
			return nil
		} else if err != nil {
			return err
		}
		token = t
	}
	return r.session.Resign(ctx, r.name, token)
}

// change carries a change out, beside the job's goroutine.
func (r *runner) change(x generate.Change) {
	ctx, cancel := context.WithCancel(r.a.ctx)
	r.abandon = cancel
	session := r.session
	r.stepsOn()
	r.a.goRun(func() {
		defer cancel()
		steps := 0
		st, err := lease.Advance(ctx, session, lease.Change{Job: r.name, Token: x.Token, Wanted: x.Wanted, Wait: x.Wait,
			Observe: func(s lease.Step, read lease.State, took time.Duration) {
				steps++
				r.stepped(s, read, took)
			}})
		if r.a.ctx.Err() == nil {
			r.tell(func(c *generate.Core, now generate.Now) { c.Changed(now, st, steps, err) })
		}
	})
}

func (r *runner) stepsOn() {
	r.mu.Lock()
	r.stepSince = r.a.now().Mono
	r.mu.Unlock()
}

// stepped takes note of a step of a change.
func (r *runner) stepped(s lease.Step, read lease.State, took time.Duration) {
	r.stepsOn()
	r.a.metrics.lease.step.WithLabelValues(s.Kind.String()).Observe(took.Seconds())
	o, _ := s.Outcome(read.Records)
	attrs := []any{"step", s.Kind.String(), "reason", whyStep(s, read), "took", took.String(), "head", int64(o.Head),
		"guard", int64(o.Guard.Generation), "guard_open", o.Guard.Open,
		"bridge_from", int64(o.Bridge.From), "bridge_to", int64(o.Bridge.To), "bridge_open", o.Bridge.Open}
	if s.Wait {
		r.log.Warn("lease step taken", attrs...)
	} else {
		r.log.Debug("lease step taken", attrs...)
	}
}

func whyStep(s lease.Step, read lease.State) string {
	switch s.Kind {
	case lease.Write:
		return "the generation is stored"
	case lease.Boot:
		return "there is a first generation"
	case lease.Span:
		return "the keys that stay are to stay usable"
	case lease.Recall:
		if s.Wait {
			return fmt.Sprintf("%d readers of the guard had time enough to come onto the bridge", read.GuardOnly)
		}
		return "every reader of the guard holds the bridge"
	case lease.Rewrite:
		return "no session holds the guard any more"
	case lease.Retire:
		if s.Wait {
			return fmt.Sprintf("%d readers of the bridge had time enough to come onto the guard", read.BridgeOnly)
		}
		return "every reader of the bridge holds the guard"
	case lease.Close:
		return "no session holds the bridge any more"
	}
	return ""
}

// write stores an assignment. In consistent mode a store that can do so compares the job
// lease in the very transaction. With one that cannot, an assigner that was deposed may
// store what it has decided last; that has no effect, since it comes in force by a step
// that compares the token, or not at all. The overrides under which it was decided are
// compared in any mode.
func (r *runner) write(ctx context.Context, x generate.Write) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	c := store.Commit{Next: x.Next, Overrides: x.Overrides, Fulfills: x.Fulfills, Entry: x.Entry, Keep: x.Keep}
	b := r.whose().backend
	if _, ok := b.(store.Fencer); ok {
		c.Token = int64(x.Token)
	}
	err := b.Commit(ctx, c)
	if errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("%w: %w", lease.ErrDeposed, err)
	}
	return err
}
