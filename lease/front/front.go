package front

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/limiter/fair"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Config is what a front needs.
type Config struct {
	// Store opens the lease store, or returns the one that is open. It is called when
	// the first session is asked for, again after an error, and not any more once it
	// has returned a store. That stays the caller's, who closes it after the front.
	Store func(ctx context.Context) (*etcdlease.Store, error)
	// LeaseTime looks up a job's lease_duration: 0 for a job that is unknown or not in
	// consistent mode, in which no session takes part. It is called by several goroutines
	// at once, and for a job that has sessions every few seconds.
	LeaseTime func(ctx context.Context, job string) (time.Duration, error)
	// Rights say who may own a job, which a session of it needs; nil lets all.
	Rights *enforce.Rights
	// Access looks up a job's access, as LeaseTime does: the zero value for a job that is
	// unknown or says nothing. Nil leaves all to the policy.
	Access func(ctx context.Context, job string) (assignment.Access, error)
	// Logger may be nil.
	Logger *slog.Logger

	lookEvery, lookUpEvery time.Duration // see the constants
}

// Front serves LeaseService. All methods are safe for concurrent use.
type Front struct {
	cfg  Config
	ctx  context.Context // of what runs until Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	opening sync.Mutex // held while the store is opened
	mu      sync.Mutex
	pool    *etcdlease.Pool // nil until a session is asked for
	closed  bool
	byName  map[ticket]*session
	jobs    map[string]*job
	limits  limits
	names   *fair.Rate // of names that are not known here, by caller
}

// Bounds of names that are not known here: of sessions and of jobs, each of which costs a read
// of etcd. So many a second for each caller, and so many at once.
const (
	unknownEvery = 10 * time.Millisecond
	unknownBurst = 500
)

// New makes a front. It asks nothing of etcd.
func New(cfg Config) (*Front, error) {
	switch {
	case cfg.Store == nil:
		return nil, fmt.Errorf("lease front: %w", &assignment.FieldError{Field: "store", Value: nil, Allowed: "a function"})
	case cfg.LeaseTime == nil:
		return nil, fmt.Errorf("lease front: %w", &assignment.FieldError{Field: "lease time", Value: nil, Allowed: "a function"})
	}
	if cfg.lookEvery == 0 {
		cfg.lookEvery = lookEvery
	}
	if cfg.lookUpEvery == 0 {
		cfg.lookUpEvery = lookUpEvery
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Front{cfg: cfg, byName: map[ticket]*session{}, jobs: map[string]*job{}, limits: newLimits(), names: fair.NewRate(unknownEvery, unknownBurst)}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.wg.Go(f.sweep)
	return f, nil
}

// Register serves LeaseService to slicelets.
func (f *Front) Register(r grpc.ServiceRegistrar) {
	slicerv1.RegisterLeaseServiceServer(r, &service{f: f})
}

// Close ends all watches and waits for what the front runs. Sessions go on at another
// front, or run out.
func (f *Front) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.wg.Wait()
	return nil
}

// errClosed: the front is closed.
var errClosed = fmt.Errorf("%w: closed", lease.ErrUnavailable)

// open returns the pool, and begins it with the first call.
func (f *Front) open(ctx context.Context) (*etcdlease.Pool, error) {
	f.mu.Lock()
	pool, closed := f.pool, f.closed
	f.mu.Unlock()
	if pool != nil || closed {
		if closed {
			return nil, errClosed
		}
		return pool, nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	pool = f.pool
	f.mu.Unlock()
	if pool != nil {
		return pool, nil
	}
	st, err := f.cfg.Store(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pool = st.Pool()
	return f.pool, nil
}

// unknown counts a name that a caller asks for and that is not known here.
func (f *Front) unknown(peer string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.names.Allow(time.Now(), peer) {
		return fmt.Errorf("%w: names that are not known here, asked for by %s", errFull, peer)
	}
	return nil
}

// known takes that back.
func (f *Front) known(peer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names.GiveBack(peer)
}

// sweepEvery is how often sessions are looked for that have left.
const sweepEvery = time.Second

// sweep forgets sessions that have run out, or are carried on by another front.
func (f *Front) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		f.mu.Lock()
		now := time.Now()
		for _, x := range f.byName {
			if now.After(x.until) {
				f.dropLocked(x, lease.ErrLost)
			}
		}
		f.mu.Unlock()
	}
}
