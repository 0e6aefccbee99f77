package distributor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/autosharding"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/handlers"
	"github.com/slicer-project/slicer/distributor/relay"
	"github.com/slicer-project/slicer/distributor/xds"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// idleFor is how long a job is kept that is not needed: its subscribers may be about
	// to return.
	idleFor = time.Minute
	// idleUnknownFor is the same for a job of which nothing is held.
	idleUnknownFor = 5 * time.Second
	// maxText bounds what others say in a log line or an error, bytes.
	maxText = 256
	// maxJobs bounds the jobs that are kept at once, whatever names are asked for.
	maxJobs = 1 << 16
)

// Distributor serves subscribers with what it gets from the assigners. All
// methods are safe for concurrent use.
type Distributor struct {
	cfg          Config
	log          *slog.Logger
	metrics      *metrics
	lookupHost   lookupFunc
	autosharding *autosharding.Service
	xds          *xds.Service
	wholes       *limiter.Wholes[*job]
	handshakes   *limiter.Handshakes
	unknowns     *limiter.Names
	tasks        tasks

	relay      *relay.Service
	handlers   *handlers.Group // and every goroutine
	candidates chan struct{}   // holds a token when assigners have named others
	cuts       cuts

	given struct{ subscribers, jobs atomic.Uint64 } // numbers given out

	// mu is taken before any job's and any attachment's lock.
	mu          sync.Mutex
	closed      bool
	jobs        map[string]*job
	prefs       fanout.Preferences
	views       fanout.PreferenceView
	attachments map[string]*attachment // by the assigner's id
	upstreams   map[string]*attachment // to Distributors of the first tier, by id
	sessions    fanout.Session
	ready       bool              // an assigner has been attached once
	errs        map[string]string // why addresses are not attached
}

// New validates the config and starts to connect to the assigners; it waits for
// nothing. Errors are *assignment.FieldError, or the Registerer's.
func New(cfg Config) (*Distributor, error) { return newDistributor(cfg, lookupHost) }

func newDistributor(cfg Config, lookup lookupFunc) (*Distributor, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	m, err := newMetrics(cfg.ID, cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	d := &Distributor{
		cfg: cfg, log: cfg.Logger.With("distributor", cfg.ID), metrics: m, lookupHost: lookup,
		handlers: handlers.New(), candidates: make(chan struct{}, 1), cuts: make(cuts, runtime.GOMAXPROCS(0)),
		jobs: make(map[string]*job), attachments: make(map[string]*attachment), errs: make(map[string]string), wholes: newWholes(), handshakes: m.newHandshakes(cfg.Rights), unknowns: limiter.NewNames(),
		upstreams: make(map[string]*attachment), views: make(fanout.PreferenceView),
		tasks: tasks{of: make(map[string]map[taskName]int)},
	}
	d.metrics.tier.Set(float64(d.tier()))
	if d.secondTier() {
		d.log.Info("this distributor is of the second tier", "upstreams", cfg.Upstreams)
	}
	d.autosharding, err = autosharding.New(autosharding.Config{
		Source: source{d}, Endpoint: cfg.AutoshardingEndpoint, Logger: d.log, Registerer: m.reg,
	})
	if err != nil {
		m.unregister()
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	d.xds, err = xds.New(xds.Config{Source: xdsSource{d}, ID: cfg.ID, Logger: d.log, Registerer: m.reg})
	if err != nil {
		d.autosharding.Close()
		m.unregister()
		return nil, fmt.Errorf("distributor config: %w", err)
	}
	d.relay = d.newRelay()
	d.handlers.Go(func() { d.maintain(d.handlers.Life()) })
	if cfg.Rights != nil {
		d.handlers.Go(func() { d.followPolicy(d.handlers.Life()) })
	}
	return d, nil
}

// Register adds SubscriberService, gRPC's AutoshardingService, xDS, AdminService, which is
// passed on to the assigners, and RelayService, for Distributors of the second tier,
// to a server. See ServerOptions.
func (d *Distributor) Register(r grpc.ServiceRegistrar) {
	slicerv1.RegisterSubscriberServiceServer(r, subscriberService{d: d})
	slicerv1.RegisterAdminServiceServer(r, adminService{d: d})
	slicerv1.RegisterRelayServiceServer(r, d.relay)
	d.autosharding.Register(r)
	d.xds.Register(r)
}

// Ready is nil once an assigner has been attached, or in the second tier a
// Distributor of the first: from then on there is, or may
// be, something to serve, even after all assigners have died.
func (d *Distributor) Ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return errors.New("the distributor is closed")
	case d.ready:
		return nil
	}
	var why []string
	for _, a := range slices.Sorted(maps.Keys(d.errs)) {
		why = append(why, a+": "+d.errs[a])
	}
	if len(why) == 0 {
		why = slices.Concat(d.cfg.Assigners, d.cfg.Upstreams)
	}
	return fmt.Errorf("no %s has been reached yet (%s)", d.cfg.asked(), strings.Join(why, "; "))
}

// Close ends all streams, up and down, and waits for everything that it has
// started, its gRPC handlers included.
func (d *Distributor) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.handlers.Stop()
	err := errors.Join(d.autosharding.Close(), d.xds.Close())
	d.relay.Close()
	d.handlers.Close()
	d.metrics.unregister()
	return err
}

// acquire returns a job, which stays until it is released as often. A name that was not
// asked for lately is asked of the assigners. The peer, a limiter's key, has a limited
// number of names that turn out to be no job's; "" is not limited.
func (d *Distributor) acquire(name, peer string) (*job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[name]
	switch {
	case d.closed:
		return nil, handlers.ErrClosing
	case j == nil && len(d.jobs) >= maxJobs:
		return nil, status.Errorf(codes.ResourceExhausted, "job %q: %d jobs are served here, no more are allowed", name, maxJobs)
	case j == nil:
		if _, named := d.prefs.StoreOf(name); named {
			peer = ""
		}
		if err := d.unknowns.Ask(time.Now(), peer, name); err != nil {
			return nil, err
		}
		j = newJob(d, name)
		j.askedBy = peer
		d.jobs[name] = j
		d.wireJob(time.Now(), j)
		d.handlers.Go(j.run)
	}
	j.refs++
	return j, nil
}

func (d *Distributor) release(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.refs--; j.refs == 0 {
		j.idleSince = time.Now()
		j.Notify()
	}
}

// lookup returns a job if it is served.
func (d *Distributor) lookup(name string) *job {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.jobs[name]
}

// dropIfIdle drops a job that was not needed for a while, or returns when it would.
func (d *Distributor) dropIfIdle(j *job, now time.Time) (at time.Time, dropped bool) {
	if at, dropped = d.takeOutIfIdle(j, now); !dropped {
		return at, false
	}
	j.log.Info("job dropped, it was not needed for a while")
	j.m.drop()
	d.wholes.Forget(now, j)
	d.autosharding.Forget(j.name)
	d.xds.Forget(j.name)
	return time.Time{}, true
}

// takeOutIfIdle is the part of dropIfIdle under the lock.
func (d *Distributor) takeOutIfIdle(j *job, now time.Time) (at time.Time, dropped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j.refs > 0 || d.closed {
		return time.Time{}, false
	}
	j.mu.Lock()
	keep := idleFor
	if j.core.Newest() == nil {
		keep = idleUnknownFor
	}
	target, preferred := j.target, j.preferred
	j.mu.Unlock()
	if at = j.idleSince.Add(keep); at.After(now) {
		return at, false
	}
	delete(d.jobs, j.name)
	if target != nil {
		target.notify(func(u *fanout.Upstream) { u.Mark(j.name) }) // to take the Want back
	}
	if preferred != nil {
		preferred.notify(func(u *fanout.Upstream) { u.MarkVacant(j.name) })
	}
	return time.Time{}, true
}
