package slicelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
	"github.com/slicer-project/slicer/slicelet/quota"
)

// Slicelet is a task's end of Slicer. All methods are safe for concurrent use.
type Slicelet struct {
	view atomic.Pointer[view]
	// lapsed: the leases of views of earlier epochs have been found to be lost.
	lapsed atomic.Uint64
	meter  *meter
	// arrivals is what adapters ask for each request.
	arrivals arrivals

	job      string
	me       assignment.Task
	log      *slog.Logger
	recorder *recorder
	sub      *subscriber.Subscriber
	leases   *lease.Reader

	// mu is held to change the view.
	mu       sync.Mutex
	newest   *subscriber.State // as it was last observed
	belief   *lease.Belief     // as it was last told
	lease    *lease.Job        // in consistent mode
	joined   bool
	leaseErr error // why there is none although there should be
	closing  bool

	listeners listeners
	stage     atomic.Uint32 // an assignment.TaskState
	timed     atomic.Bool   // the time that requests take is load
	reportNow chan struct{} // of capacity 1: the reporter has something to do

	stop       chan struct{}
	wg         sync.WaitGroup
	close      sync.Once
	unregister func()
}

// New validates the config and starts; it does not wait for an assignment. Errors
// name the field that is not allowed (*assignment.FieldError). Every Slicelet is
// a new incarnation of its task: it owns nothing until it is assigned something.
func New(cfg Config) (*Slicelet, error) {
	if err := cfg.fill(os.Getenv); err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	log := subscriber.LoggerOrDefault(cfg.Logger)
	s := &Slicelet{
		meter: newMeter(), job: cfg.Job, me: cfg.task(), log: log.With("job", cfg.Job, "task", cfg.Task), leases: cfg.Leases,
		reportNow: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	s.arrivals.attempts.began, s.arrivals.customer, s.arrivals.patience = time.Now(), cfg.Customer, cfg.Patience
	s.arrivals.control = admission.New(admission.Config{
		CPU: processCPU, Clients: func() int { return s.sub.State().Status.Subscribers }, HeavyKeys: s.Admission().HeavyKeys, Signals: cfg.signals(),
	})
	s.arrivals.accounts = quota.New(time.Now())
	s.listeners.changed = make(chan struct{})
	s.listeners.moves = moves{wake: make(chan struct{}, 1), waiting: make(map[*move]struct{})}
	s.listeners.ctx, s.listeners.end = context.WithCancel(context.Background())
	s.stage.Store(uint32(s.me.State))
	s.view.Store(emptyView())
	s.recorder = newRecorder(s.meter, s.arrivals.control, processCPU, time.Now())
	sub, err := subscriber.New(subscriber.Config{
		Job: cfg.Job, Role: subscriber.Slicelet, ClientID: fmt.Sprintf("%.80s-%016x", cfg.Task, s.me.Incarnation),
		Zone: cfg.Zone, Task: s.me, Parts: cfg.Static == nil && !cfg.WholeAssignment, First: firstReport(s.me.State), Distributors: cfg.Distributors, Backups: cfg.Backups, CacheFile: cfg.CacheFile, Static: cfg.Static,
		Logger: log, DialOptions: cfg.DialOptions, Tracer: cfg.Tracer, Observe: s.observe,
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.sub = sub
	s.joinLocked(sub.State().Status.Mode)
	s.mu.Unlock()
	s.unregister, err = subscriber.Register(cfg.Registerer, "slicelet", prometheus.Labels{"job": cfg.Job, "task": cfg.Task},
		subscriber.NewCollector("slicelet", s.sub), newCollector(s))
	if err != nil {
		_, _ = s.leave(), s.sub.Close()
		s.listeners.end()
		return nil, err
	}
	s.wg.Go(s.report)
	return s, nil
}

// observe puts an assignment to use, before it is acknowledged.
func (s *Slicelet) observe(st subscriber.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil || s.newest.Quotas != st.Quotas {
		s.arrivals.take(time.Now(), st.Quotas)
	}
	s.newest = &st
	s.joinLocked(st.Status.Mode)
	s.lookLocked()
}

// lookLocked brings the view up to date. s.mu is held.
func (s *Slicelet) lookLocked() {
	before := s.view.Load()
	v := before.next(s.newest, s.belief, s.me)
	if v == before {
		return
	}
	if s.listeners.allLocked(func(told *view) bool { return told == before }) {
		v.gone = v.gone[:min(len(v.gone), 2)] // in consistent mode keys go after the next part has come
	}
	s.view.Store(v)
	s.recorder.follow(v, time.Now())
	s.log.Debug("ownership", "generation", v.generation(), "slices", len(v.own.entries), "provisional", v.provisional)
	s.listeners.wake()
}

func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// IsAffinitized reports whether this task owns the key, to tell misrouted requests.
// It counts nothing, takes no lock and does not allocate. In consistent mode it
// reads the clock, as do Handle and Slices.
func (s *Slicelet) IsAffinitized(key string) bool {
	_, _, owned := s.find(assignment.KeyOf(key))
	return owned
}

// Handle counts one request for the key and returns its handle. Call it once a
// request, when it arrives: this is what load is balanced by. It takes tens of
// nanoseconds on however many cores, and in consistent mode those of reading the
// clock besides, and does not allocate.
func (s *Slicelet) Handle(key string) Handle { return s.HandleSliceKey(assignment.KeyOf(key)) }

// HandleSliceKey is Handle for a request whose client has hashed the key itself. What
// is no slice key, below assignment.KeyspaceEnd, has no owner.
func (s *Slicelet) HandleSliceKey(k assignment.SliceKey) Handle {
	v, i, owned := s.find(k)
	h := Handle{s: s, key: k, epoch: v.epoch, owned: owned}
	if owned {
		h.token = v.tokenOf(i, k)
	}
	// By the newest assignment, whether or not the task owns the key already, or still.
	if v.metered != v.own {
		i = v.metered.find(k)
	}
	s.meter.request(k, v.metered, i, owned)
	return h
}

// ReportLoad adds load, in a unit of the application's own, to what the key has
// brought, for jobs whose load metric is custom. It counts no request. Negative
// load, infinite load and what is no number are ignored.
func (s *Slicelet) ReportLoad(key string, load float64) {
	s.reportLoad(assignment.KeyOf(key), load)
}

func (s *Slicelet) reportLoad(k assignment.SliceKey, load float64) {
	if !(load > 0) || math.IsInf(load, 0) {
		return
	}
	v := s.view.Load()
	s.meter.custom(k, v.metered, v.metered.find(k), min(load, wire.MaxRate))
}

// Slices returns the slices that this task owns, in key order.
func (s *Slicelet) Slices() []assignment.Slice {
	v := s.view.Load()
	if v.leased && !s.believes(v) {
		return nil
	}
	own := v.own
	out := make([]assignment.Slice, len(own.entries))
	for i := range out {
		out[i] = own.slice(i)
	}
	return out
}

// Assignment is the newest that has arrived, nil if none yet. Of a large job it is the part for
// this task (assignment.Cut), which does not know who owns keys that are not the task's, unless
// Config.WholeAssignment is set.
func (s *Slicelet) Assignment() *assignment.Assignment { return s.sub.State().Assignment }

// Mode is the job's: what ownership means here. As long as the control plane has not said,
// the task owns nothing, and Mode is assignment.Consistent if Config.Leases is set, so that
// nothing is served meanwhile that it might not own, and 0 otherwise.
func (s *Slicelet) Mode() assignment.Mode {
	if mode := s.sub.State().Status.Mode; mode != 0 || s.leases == nil {
		return mode
	}
	return assignment.Consistent
}

// settleTime is how long a Distributor has to put up with a task that no
// assignment names before the task counts as ready: whether its name is taken is
// for an assigner to say, a moment later.
const settleTime = time.Second

// Ready waits until there is an assignment and either a server stands behind it
// or none can be reached, and the cache file has to do; in consistent mode also
// until the lease store has answered. The task need not own anything yet.
// Otherwise the error matches ctx's, or ErrClosed, and says why, such as
// ErrTaskNameTaken. It is ErrConsistent at once in a job in that mode if there are
// no Leases.
func (s *Slicelet) Ready(ctx context.Context) error {
	if err := s.placed(ctx); err != nil {
		return err
	}
	held, err := s.held()
	if err == nil && held != nil {
		err = held.Ready(ctx)
	}
	switch {
	case err == nil:
		return nil
	case s.closed():
		err = ErrClosed
	}
	return fmt.Errorf("task %q: %w", s.me.Name, err)
}

// placed waits until the subscriber is ready, and no server objects to the task.
func (s *Slicelet) placed(ctx context.Context) error {
	served := func(st *subscriber.State) bool {
		return st.Assignment != nil && st.Status.Mode != 0 && (st.Link != subscriber.None || st.Disconnected)
	}
	settled := func(st *subscriber.State) bool { return s.named(st.Assignment) || !served(st) }
	for {
		if err := s.sub.Await(ctx, "an assignment", served); err != nil {
			return err
		}
		if _, err := s.held(); err != nil {
			return nil // which Ready goes into
		}
		if st := s.sub.State(); s.named(st.Assignment) || st.Disconnected {
			return nil
		}
		wait, cancel := context.WithTimeout(ctx, settleTime)
		err := s.sub.Await(wait, "a place in the assignment", settled)
		cancel()
		switch {
		case errors.Is(err, ErrClosed):
			return err
		case err != nil && ctx.Err() == nil:
			return nil
		}
	}
}

// named reports whether an assignment knows this incarnation.
func (s *Slicelet) named(a *assignment.Assignment) bool {
	if a == nil {
		return false
	}
	pos, ok := a.Position(s.me.Name)
	return ok && a.Task(pos).Incarnation == s.me.Incarnation
}

// Close ends the stream to the Distributor, gives the leases back, and waits until all
// has ended: at most about a second, and one and a half lease times if the lease store
// does not answer, and as long as listeners take. Afterwards the task owns nothing and
// handles are not valid. Unless it has drained, others get its keys only when the job's
// heartbeat timeout is over, as after a crash.
//
// A listener that does not know yet of keys that departed before Close was called is
// told of them, once the call under way has returned; it is not told of what departs
// by Close itself. Its context ends after ListenerGrace, and Close waits until it has
// returned. Drain first, so that no request is lost.
func (s *Slicelet) Close() error {
	s.close.Do(func() {
		s.unregister()
		s.mu.Lock()
		s.closing = true
		s.listeners.last.Store(s.view.Load())
		s.mu.Unlock()
		close(s.stop)
	})
	grace := time.AfterFunc(ListenerGrace, s.listeners.end)
	defer grace.Stop()
	left := make(chan error, 1)
	go func() { left <- s.leave() }()
	s.wg.Wait()
	s.listeners.end()
	err := errors.Join(s.sub.Close(), <-left)
	s.arrivals.control.Close()
	// Nothing changes the view any more.
	gone := emptyView()
	gone.epoch = s.view.Load().epoch + 1
	s.view.Store(gone)
	if err != nil {
		return fmt.Errorf("task %q: %w", s.me.Name, err)
	}
	return nil
}

func (s *Slicelet) closed() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
