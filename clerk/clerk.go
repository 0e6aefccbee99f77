package clerk

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/percore"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Config says in which job a clerk looks keys up, and which servers know it.
type Config struct {
	// Job is the job's name, an RFC 1123 label.
	Job string
	// Distributors and Backups (Backup Distributors) are host:port, at most 256
	// each and at least one altogether, unless Static is set. Each may have its zone before
	// it, as zone=host:port: those of Zone are taken first.
	Distributors, Backups []string
	// CacheFile keeps the newest assignment across restarts, so that the clerk is
	// ready at once even if all of Slicer is dead; empty is none. Clerks of one job
	// may share a file.
	CacheFile string
	// Static, if not nil, is the job's assignment for good, in affinity mode: no server is asked,
	// and Distributors, Backups and CacheFile are left empty. It is for tests
	// (slicertest.Assignment), and for programs that are to run without Slicer.
	Static *assignment.Assignment
	// ClientID names the clerk in metrics and errors of the control plane: 1 to 128
	// printable ASCII characters without space or slash, distinct among the job's
	// clients. The default is the machine's name and a random number.
	ClientID string
	// Zone is where the client runs, at most 63 such characters; may be empty.
	Zone string
	// Subset says which tasks to keep connections to; the default is all.
	Subset SubsetConfig
	// Criticality is that of requests whose context says none; 0 leaves it to the job's
	// default. See package overload.
	Criticality overload.Criticality
	// MaxOutstanding is how many requests may be under way at a task that all that use the
	// clerk have sent: up to 1,000,000, and 0, the default, is any number. A task that has so
	// many gets no more: another owner of the key does, and where there is none below it the
	// request fails at once, as an Overloaded. (The flow control of Site Reliability
	// Engineering, chapter 20.) It is off by default, as how many requests are under way
	// says little of how much a task has to do: where they last long, as streams and long
	// polls do, a task is at the limit that has much to spare, and where they are short it is
	// overloaded long before.
	MaxOutstanding int
	// Logger may be nil: then it is slog.Default() as it is at New, and for WARN and
	// above only. Silence is slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Registerer takes the clerk's metrics; nil is none. Clerks may share one.
	Registerer prometheus.Registerer
	// DialOptions are for the connections to Distributors; none means an insecure
	// transport.
	DialOptions []grpc.DialOption
	// Tracer gets spans of connections to Distributors until they are set up; nil is none.
	Tracer trace.Tracer
}

const maxOutstanding = 1_000_000

// What Ready's error may match.
var (
	ErrUnknownJob  = subscriber.ErrUnknownJob  // the store says that there is no such job
	ErrNotAllowed  = subscriber.ErrNotAllowed  // the identity in our certificate may not watch the job
	ErrUnavailable = subscriber.ErrUnavailable // no server answers, or none has an assignment yet
	ErrClosed      = subscriber.ErrClosed
)

// Clerk looks keys up. All methods are safe for concurrent use.
type Clerk struct {
	job         string
	newest      atomic.Pointer[assignment.Assignment]
	former      atomic.Pointer[assignment.Assignment] // the one before, in consistent mode
	subset      atomic.Pointer[Subset]
	tally       *tally
	connections connections
	retries     retries
	budgets     *budgets
	throttles   *throttles
	chooser     chooser
	criticality overload.Criticality

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when newest or subset change

	sub        *subscriber.Subscriber
	unregister func()
	close      sync.Once
}

// Validate names the first field that is not allowed (*assignment.FieldError).
func (c Config) Validate() error {
	if c.ClientID == "" {
		c.ClientID = "client"
	}
	if c.Criticality != 0 && !c.Criticality.Valid() {
		return &assignment.FieldError{Field: "criticality", Value: uint8(c.Criticality), Allowed: "0, or one of package overload"}
	}
	if c.MaxOutstanding < 0 || c.MaxOutstanding > maxOutstanding {
		return &assignment.FieldError{Field: "max_outstanding", Value: c.MaxOutstanding, Allowed: fmt.Sprintf("0 to %d", maxOutstanding)}
	}
	if _, err := newChooser(c.Subset, c.ClientID); err != nil {
		return err
	}
	return new(c.subscriber()).Validate()
}

func (c Config) subscriber() subscriber.Config {
	cfg := subscriber.Config{
		Job: c.Job, Role: subscriber.Clerk, ClientID: c.ClientID, Zone: c.Zone,
		Distributors: c.Distributors, Backups: c.Backups, CacheFile: c.CacheFile, Static: c.Static,
		Logger: subscriber.LoggerOrDefault(c.Logger), DialOptions: c.DialOptions, Tracer: c.Tracer,
	}
	if i := c.Subset.Index; i != nil {
		cfg.ClientIndex = new(uint32(*i))
	}
	return cfg
}

// New validates the config and starts; it does not wait for an assignment. Errors
// name the field that is not allowed (*assignment.FieldError).
func New(cfg Config) (*Clerk, error) {
	if cfg.ClientID == "" {
		cfg.ClientID = subscriber.NewClientID("")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	chooser, err := newChooser(cfg.Subset, cfg.ClientID)
	if err != nil {
		return nil, err
	}
	c := &Clerk{job: cfg.Job, tally: newTally(), budgets: newBudgets(), throttles: newThrottles(cfg.Job, cfg.MaxOutstanding), chooser: chooser, criticality: cfg.Criticality, changed: make(chan struct{})}
	sub := cfg.subscriber()
	sub.Observe = c.observe
	if c.sub, err = subscriber.New(sub); err != nil {
		return nil, err
	}
	c.unregister, err = subscriber.Register(cfg.Registerer, "clerk", prometheus.Labels{"job": cfg.Job},
		subscriber.NewCollector("clerk", c.sub), c.tally, &c.connections, &c.retries, c.budgets, c.throttles)
	if err != nil {
		_ = c.sub.Close()
		return nil, err
	}
	return c, nil
}

// observe takes over what the subscriber has. Calls are serial.
func (c *Clerk) observe(s subscriber.State) {
	a := s.Assignment
	if a == nil {
		return
	}
	defer c.throttles.tell(a, s.Status.Conditions)
	if index, known := c.chooser.index(s.ClientIndex); c.subset.Load().same(a, index, known) {
		return
	}
	if was := c.newest.Load(); s.Status.Mode == assignment.Consistent && was != a {
		c.former.Store(was)
	}
	c.newest.Store(a)
	c.throttles.keep(a)
	c.subset.Store(c.chooser.choose(a, s.ClientIndex))
	c.mu.Lock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
}

// Lookup returns the tasks that own a key; they are in no particular order of
// preference. There are none, and Len is 0, only as long as there is no
// assignment: see Ready. It takes tens of nanoseconds, no lock and no
// allocation, however many slices there are.
func (c *Clerk) Lookup(key string) assignment.Replicas {
	a := c.newest.Load()
	if a == nil {
		c.tally.missed.Add(1)
		return assignment.Replicas{}
	}
	// As tally.add, which would not be inlined.
	if core := percore.Pin(); core < len(c.tally.cells) {
		count(&c.tally.cells[core].n, 1)
	} else {
		c.tally.beyond.Add(1)
	}
	percore.Unpin()
	return a.Lookup(assignment.KeyOf(key))
}

// Job is the job's name.
func (c *Clerk) Job() string { return c.job }

// Assignment is the newest that the clerk has seen, nil if none yet. Lookup uses
// this one or a newer one.
func (c *Clerk) Assignment() *assignment.Assignment { return c.newest.Load() }

// Ready waits until there is an assignment, be it from the cache file. Otherwise
// its error matches ctx's, or ErrClosed, and says why there is none.
func (c *Clerk) Ready(ctx context.Context) error {
	if err := c.sub.Ready(ctx); err != nil {
		return err
	}
	// The subscriber has one. In a moment, observe has too.
	for changed := c.Changed(); c.subset.Load() == nil; changed = c.Changed() {
		<-changed
	}
	return nil
}

// Changed returns a channel that is closed at the next change of the assignment
// or of the subset. To miss none, call it before looking at Assignment or Subset,
// and again for the change after.
func (c *Clerk) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Close says goodbye to the Distributor and waits until all has ended, at most
// about a second. Lookup goes on with the last assignment.
func (c *Clerk) Close() error {
	c.close.Do(c.unregister)
	return c.sub.Close()
}
