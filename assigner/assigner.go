package assigner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assigner/downstream"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Assigner is one assigner. All methods are safe for concurrent use.
type Assigner struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	began   time.Time
	start   generate.Now

	ctx    context.Context // until Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	stores []*storeWatch // one a store, in the order of the config
	dirty  chan struct{} // holds a token when preferences are to be worked out anew
	// creating holds a token while a job is created whose creator has a bound.
	creating  chan struct{}
	creations creations // is for the holder of the token

	// attached are the sessions, in order of number. The slice is never changed,
	// only replaced, with mu held.
	attached atomic.Pointer[[]*session]

	// Locks are taken in this order: mu, then a runner's, then a session's.
	mu     sync.Mutex
	jobs   map[string]*runner
	next   downstream.Session
	closed bool
}

// New starts an assigner. It does not wait for the stores: see Ready.
func New(cfg Config) (*Assigner, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("assigner: %w", err)
	}
	a := &Assigner{
		cfg: cfg, log: cfg.Logger.With("assigner", cfg.ID),
		dirty: make(chan struct{}, 1), creating: make(chan struct{}, 1), jobs: make(map[string]*runner), began: time.Now(),
	}
	a.start = a.now()
	a.attached.Store(new([]*session))
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.metrics = newMetrics(a)
	if err := a.metrics.register(cfg.Registerer, cfg.ID); err != nil {
		a.cancel()
		return nil, fmt.Errorf("assigner %s: metrics: %w", cfg.ID, err)
	}
	for i, s := range cfg.Stores {
		a.stores = append(a.stores, newStoreWatch(a, i, s))
	}
	for _, s := range a.stores {
		a.goRun(s.watchJobs)
		a.goRun(s.watchCandidates)
		a.goRun(s.campaign)
		a.goRun(s.watchHealth)
		if c, ok := s.backend.(store.Compactor); ok {
			a.goRun(func() { s.watchRoom(c) })
			if cfg.Compact > 0 {
				a.goRun(func() { s.compact(c, cfg.Compact) })
			}
		}
		a.goRun(s.leases.run)
	}
	a.goRun(a.prefer)
	return a, nil
}

// goRun runs f in a goroutine that Close waits for. It returns false when the
// assigner is closed.
func (a *Assigner) goRun(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.wg.Add(1)
	go func() {
		defer a.wg.Done()
		f()
	}()
	return true
}

// Register adds AssignerService and AdminService to a server; see ServerOptions.
func (a *Assigner) Register(r grpc.ServiceRegistrar) {
	slicerv1.RegisterAssignerServiceServer(r, assignerService{a: a})
	slicerv1.RegisterAdminServiceServer(r, adminService{a: a})
}

// Ready is nil when the assigner can decide for the jobs of at least one of its stores: it
// knows them and the other assigners, the store can be read and written, and the assigner
// is registered in it if a Distributor is attached. Otherwise it says what is missing.
func (a *Assigner) Ready() error {
	if a.ctx.Err() != nil {
		return errors.New("assigner is closed")
	}
	var errs []error
	for _, s := range a.stores {
		err := s.ready()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close withdraws the assigner, so that others take over at once, ends the
// streams of its Distributors and waits for everything that it runs.
func (a *Assigner) Close() error {
	a.mu.Lock()
	was := a.closed
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.wg.Wait()
	if !was {
		a.metrics.unregister()
	}
	return nil
}

// now is this moment, on both clocks.
func (a *Assigner) now() generate.Now {
	now := time.Now()
	// Without its monotonic part a wall time shows when the wall clock jumps.
	return generate.Now{Mono: now.Sub(a.began), Wall: wall(now.Round(0))}
}

// sessions are the attached Distributors; not to be changed.
func (a *Assigner) sessions() []*session { return *a.attached.Load() }

// heard is when each Distributor last said something.
func (a *Assigner) heard(yield func(downstream.Session, time.Duration) bool) {
	for _, s := range a.sessions() {
		if !yield(s.id, time.Duration(s.heard.Load())) {
			return
		}
	}
}

// tell takes something to a job, whose runner is made if need be, and returns that with its
// answer: nil when the assigner is closed.
func (a *Assigner) tell(job string, e downstream.Event) (r *runner, answer downstream.Action) {
	for ok := false; !ok; answer, ok = r.tell(e) {
		if r = a.runner(job); r == nil {
			return nil, nil
		}
	}
	return r, answer
}

// runner is that of a job, made if need be, nil when the assigner is closed.
func (a *Assigner) runner(job string) *runner {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.jobs[job]; r != nil || a.closed {
		return r
	}
	r := newRunner(a, job)
	a.jobs[job] = r
	a.wg.Add(1)
	go func() {
		defer a.wg.Done()
		r.run()
	}()
	return r
}

// lookup finds the runner of a job, nil if there is none.
func (a *Assigner) lookup(job string) *runner {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs[job]
}

// runners are those of all jobs, in no particular order.
func (a *Assigner) runners() []*runner {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*runner, 0, len(a.jobs))
	for _, r := range a.jobs {
		all = append(all, r)
	}
	return all
}

// changed says that the store has named a job, or that it was written here.
func (a *Assigner) changed(job string) {
	a.tell(job, func(c *generate.Core, now generate.Now) { c.StoreChanged(now) })
}

// told says what a store has of a job.
func (a *Assigner) told(s *storeWatch, x store.Change) {
	r := a.runner(x.Job)
	if r == nil {
		return
	}
	r.tell(func(c *generate.Core, now generate.Now) {
		if r.home == s {
			c.StoreHas(now, x)
		} else {
			c.StoreChanged(now)
		}
	})
}

// retire forgets a runner whose job does not exist and that is not watched. It returns
// false when that is not so.
func (a *Assigner) retire(r *runner) bool {
	if !a.takeOutIfIdle(r) {
		return false
	}
	a.metrics.forget(r.name)
	if again := a.lookup(r.name); again != nil {
		again.ask(func(v generate.View) {
			if v.IsPreferred() { // it was made anew meanwhile
				a.metrics.begin(r.name)
			}
		})
	}
	return true
}

// takeOutIfIdle is the part of retire under the lock.
func (a *Assigner) takeOutIfIdle(r *runner) bool {
	r.mu.Lock()
	idle := r.job.Idle(a.now())
	r.mu.Unlock()
	if !idle {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired = r.job.Idle(a.now()); r.retired {
		delete(a.jobs, r.name)
	}
	return r.retired
}

// attach enters a Distributor's stream. A stream that it had before ends; but where a policy
// is in force its id belongs to the identity of a stream that lives.
func (a *Assigner) attach(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errClosing
	}
	if policy, _ := a.cfg.Rights.Policy(); policy != nil {
		for _, old := range a.sessions() {
			if old.name == s.name && old.caller.Identity != s.caller.Identity {
				return &takenError{old.caller.Identity}
			}
		}
	}
	s.id = a.next + 1
	if !s.begin() {
		return errClosing
	}
	a.next++
	for _, old := range a.sessions() {
		if old.name == s.name {
			old.supersede()
		}
	}
	all := append(slices.Clone(a.sessions()), s)
	a.attached.Store(&all)
	for _, r := range a.jobs {
		r.tell(downstream.Attached{From: s.id, Name: s.name})
	}
	a.notifyStores()
	notify(a.dirty)
	return nil
}

func (a *Assigner) detach(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(a.sessions()), func(o *session) bool { return o == s })
	a.attached.Store(&all)
	for _, r := range a.jobs {
		r.tell(downstream.Detached{From: s.id})
	}
	a.notifyStores()
}

func (a *Assigner) notifyStores() {
	for _, s := range a.stores {
		notify(s.attached)
	}
}

// notify puts a token into a channel that holds one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
