package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
)

// Config is what a process's reader needs.
type Config struct {
	// Readers opens the session: an etcd or a served lease store.
	Readers Readers
	// TTL is the lease time asked for, 1 s to 10 min; default 5 s. After a crash its
	// keys are without an owner for so long. A served store grants at most the
	// smallest lease_duration of the jobs that are joined; what it grants counts.
	TTL time.Duration
	// Margin is by how much the deadline here lies before the store's: drift
	// between two clocks over a TTL, and the time that the listener has to act on a lost
	// lease. 10 ms to half of TTL; default a tenth of TTL. If less than TTL is
	// granted, it is less in the same proportion.
	Margin time.Duration
	// Patience is how long a change is held up for an assignment or a bridge
	// that cannot be had, 0 to 10 min; default, and at most, half of the lease time
	// granted: a served store lets a session run out that holds up a change for
	// longer than the job's lease_duration.
	Patience time.Duration
	// Clock is the time that deadlines are measured in; default Boottime.
	Clock func() time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.TTL == 0 {
		c.TTL = 5 * time.Second
	}
	if c.Margin == 0 {
		c.Margin = c.TTL / 10
	}
	if c.Patience == 0 {
		c.Patience = c.TTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Readers == nil:
		return &assignment.FieldError{Field: "readers", Value: nil, Allowed: "a lease store"}
	case CheckTTL(c.TTL) != nil:
		return CheckTTL(c.TTL)
	case c.Margin < 10*time.Millisecond || c.Margin > c.TTL/2:
		return &assignment.FieldError{Field: "margin", Value: c.Margin, Allowed: fmt.Sprintf("10ms to half of ttl, %s", c.TTL/2)}
	case c.Patience < 0 || c.Patience > MaxTTL:
		return &assignment.FieldError{Field: "patience", Value: c.Patience, Allowed: "0 to 10m"}
	}
	return nil
}

// Reader is a process's end of the lease store: one session, kept alive by one
// loop, for all the jobs that the process serves.
type Reader struct {
	cfg    Config
	stats  *metrics
	cancel context.CancelFunc
	wg     sync.WaitGroup

	wanted chan struct{} // holds a token when there is a job to open a session for

	mu      sync.Mutex
	current *held // nil between sessions
	jobs    map[*Job]struct{}
	closed  bool
	err     error // why there is no session
}

// held is a session with its deadline.
type held struct {
	session ReadSession
	term    *term
	ttl     time.Duration // that was granted when it was opened
	doubts  chan struct{} // holds a token when an answer says that the session is lost
}

func (h *held) doubt() {
	select {
	case h.doubts <- struct{}{}:
	default:
	}
}

// NewReader validates the config. A session is opened with the first job that is
// joined, and named to the store with it are all that are joined by then.
func NewReader(cfg Config) (*Reader, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("lease reader: %w", err)
	}
	if cfg.Clock == nil {
		if err := checkClock(); err != nil {
			return nil, fmt.Errorf("lease reader: %w", err)
		}
		cfg.Clock = Boottime
	}
	stats, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("lease reader: metrics: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{cfg: cfg, stats: stats, cancel: cancel, wanted: make(chan struct{}, 1), jobs: map[*Job]struct{}{}, err: fmt.Errorf("%w: no answer yet", ErrUnavailable)}
	r.wg.Go(func() { r.run(ctx) })
	return r, nil
}

// Close ends all belief, gives the session back so that none has to wait for
// it to run out, and waits for what the reader runs.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	jobs := make([]*Job, 0, len(r.jobs))
	for j := range r.jobs {
		jobs = append(jobs, j)
	}
	current := r.current
	r.mu.Unlock()
	for _, j := range jobs {
		j.cancel()
		<-j.left // belief has ended
	}
	r.cancel()
	r.wg.Wait()
	if current == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.TTL)
	defer cancel()
	if err := current.session.Close(ctx); err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("lease reader: the session is not given back and runs out by itself: %w", err)
	}
	return nil
}

// run opens one session after the other, and keeps each alive until it is lost.
func (r *Reader) run(ctx context.Context) {
	wait := r.cfg.TTL / 50
	for ctx.Err() == nil {
		tasks := r.tasks()
		if len(tasks) == 0 {
			select {
			case <-r.wanted:
			case <-ctx.Done():
			}
			continue
		}
		h, err := r.open(ctx, tasks)
		if errors.Is(err, ErrWentBack) {
			r.rest(ctx, err, r.cfg.TTL)
			continue
		}
		if err != nil {
			r.cfg.Logger.Warn("no lease session", "error", err, "again_in", wait)
			r.failed(err)
			backoff.Sleep(ctx, backoff.Jitter(wait))
			wait = min(2*wait, r.cfg.TTL/2)
			continue
		}
		wait = r.cfg.TTL / 50
		r.stats.sessions.Inc()
		r.begin(h)
		err = r.keep(ctx, h)
		if ctx.Err() != nil {
			return
		}
		early := errors.Is(err, ErrWentBack) || errors.Is(err, ErrLost) && h.term.valid()
		h.term.end()
		r.cfg.Logger.Warn("lease session lost", "session", h.session.ID(), "error", err)
		r.begin(nil)
		r.wg.Go(func() { r.discard(h) })
		if early {
			r.rest(ctx, err, h.ttl)
		}
	}
}

// rest opens no session for a lease time. A store that has lost a lease before its
// time may have gone back to an earlier state, and others may not know it yet: they
// believe in what they have acquired since, until their deadlines, and the store
// grants it anew.
func (r *Reader) rest(ctx context.Context, why error, ttl time.Duration) {
	r.cfg.Logger.Warn("no lease session until those of others have run out", "error", why, "again_in", ttl)
	r.failed(why)
	backoff.Sleep(ctx, ttl)
}

// discard gives back a session that is over here and may not be in the store.
func (r *Reader) discard(h *held) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.TTL/2)
	defer cancel()
	if err := h.session.Close(ctx); err != nil && !errors.Is(err, ErrLost) {
		r.cfg.Logger.Info("lease session not given back: it runs out", "session", h.session.ID(), "error", err)
	}
}

// tasks returns the jobs that are joined, with the names of the tasks, at most as many as
// a session is opened for; the others follow by Join.
func (r *Reader) tasks() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := map[string]string{}
	for j := range r.jobs {
		if _, named := tasks[j.cfg.Job]; !named || !j.departed {
			tasks[j.cfg.Job] = j.cfg.Task
		}
	}
	for _, job := range slices.Sorted(maps.Keys(tasks))[min(len(tasks), MaxJobs):] {
		delete(tasks, job)
	}
	return tasks
}

// margin is by how much the deadline lies before the store's, of a lease of this time.
func (r *Reader) margin(ttl time.Duration) time.Duration {
	return max(time.Duration(float64(r.cfg.Margin)*(float64(ttl)/float64(r.cfg.TTL))), min(10*time.Millisecond, ttl/2))
}

func (r *Reader) open(ctx context.Context, tasks map[string]string) (*held, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.TTL)
	defer cancel()
	sent := r.cfg.Clock()
	s, err := r.session(ctx, tasks)
	if err != nil {
		return nil, err
	}
	t, ttl := &term{clock: r.cfg.Clock}, s.TTL()
	t.deadline.Store(int64(sent + ttl - r.margin(ttl)))
	return &held{s, t, ttl, make(chan struct{}, 1)}, nil
}

func (r *Reader) session(ctx context.Context, tasks map[string]string) (ReadSession, error) {
	if named, ok := r.cfg.Readers.(TaskReaders); ok {
		return named.OpenReaderAs(ctx, r.cfg.TTL, tasks)
	}
	return r.cfg.Readers.OpenReader(ctx, r.cfg.TTL, slices.Sorted(maps.Keys(tasks))...)
}

// errLapsed: the session is over here. In the store it may go on.
var errLapsed = errors.New("the deadline has passed")

// keep renews the session until it is lost or ctx ends. The deadline counts
// from when the keepalive was sent that has been answered.
func (r *Reader) keep(ctx context.Context, h *held) error {
	pause := func() time.Duration { return backoff.Jitter(max(h.session.TTL()/3, 20*time.Millisecond)) }
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.doubts:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !h.term.valid() {
			return errLapsed
		}
		sent := r.cfg.Clock()
		call, cancel := context.WithTimeout(ctx, h.ttl/4)
		err := h.session.KeepAlive(call)
		cancel()
		r.stats.keepalives.WithLabelValues(result(err)).Inc()
		ttl := h.session.TTL()
		switch {
		case errors.Is(err, ErrLost):
			return err
		case errors.Is(err, ErrRefused):
			// It would run out. Given back now, what it may hold still is without an owner
			// for a moment alone.
			return err
		case err != nil:
			timer.Reset(backoff.Jitter(h.ttl / 20))
		case !h.term.extend(sent + ttl - r.margin(ttl)):
			return errLapsed
		default:
			timer.Reset(pause())
		}
	}
}

func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrLost):
		return "lost"
	}
	return "failed"
}

// begin makes h the session of all jobs.
func (r *Reader) begin(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = h
	for j := range r.jobs {
		if !r.waitsLocked(j) {
			j.setSessionLocked(h)
		}
	}
}

func (r *Reader) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; !errors.Is(err, ErrUnavailable) {
		r.err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// why says why the last attempt at a session failed.
func (r *Reader) why() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// admitLocked says why a job cannot be joined. The reader's lock is held.
func (r *Reader) admitLocked(job string) error {
	if r.closed {
		return errors.New("the reader is closed")
	}
	for j := range r.jobs {
		if j.cfg.Job == job && !j.departed {
			return ErrJoined
		}
	}
	return nil
}

// waitsLocked reports whether what was left of the job before is still to be released: until
// then the job has no session. The reader's lock is held.
func (r *Reader) waitsLocked(j *Job) bool {
	for k := range r.jobs {
		if k.departed && !j.departed && k.cfg.Job == j.cfg.Job {
			return true
		}
	}
	return false
}

// leave lets a job be joined again.
func (r *Reader) leave(j *Job, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j.departed, j.leftErr = true, why
}

// forget ends a job with which all is done, and lets the next one of its name begin.
func (r *Reader) forget(j *Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j)
	j.leftErr = nil
	for k := range r.jobs {
		if k.cfg.Job == j.cfg.Job && !r.waitsLocked(k) {
			k.setSessionLocked(r.current)
		}
	}
}
