package slicelet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/lease"
)

// Config identifies the task, and names the servers that are to know it.
type Config struct {
	// Job is the job's name, an RFC 1123 label.
	Job string
	// Task is the task's name: stable across restarts and unique among the job's
	// live tasks. 1 to 253 printable ASCII characters without space or slash. Empty stands for
	// the environment's SLICER_TASK, and without it for POD_NAME.
	Task string
	// Address is what clients dial, host:port, as they see it. 1 to 512 characters.
	// Empty, or that of a listener on all interfaces, such as [::]:8080, stands for the
	// environment's SLICER_ADDRESS, and without it the latter for its own port at POD_IP;
	// without either it is refused.
	Address string
	// Zone is where the task runs, at most 63 characters; may be empty.
	Zone string
	// Weight is the task's capacity relative to the job's others: a task of weight 2
	// should carry twice the load. 1e-6 to 1e6; 0 stands for 1.
	Weight float64
	// Starting: the task is not ready for requests yet, as one that has caches to fill. Clients
	// connect to it and send it none, and it owns nothing, until Slicelet.Started is called.
	Starting bool
	// Distributors and Backups (Backup Distributors) are host:port, at most 256
	// each and at least one altogether, unless Static is set. Each may have its zone before
	// it, as zone=host:port: those of Zone are taken first.
	Distributors, Backups []string
	// CacheFile keeps the newest assignment across restarts; empty is none. With it
	// a task that is restarted at the same address while all of Slicer is dead goes
	// on with its slices, in affinity mode.
	CacheFile string
	// WholeAssignment: the whole is wanted however large it is, since the program asks
	// Slicelet.Assignment for the owners of keys that are not its own, or for all tasks, or
	// Handle.OnMove for such keys. Without it, from assignment.PartFrom slices on, a slicelet
	// holds what it owns alone: kilobytes in place of some 30 bytes for each of the job's slices.
	WholeAssignment bool
	// Static, if not nil, is the job's assignment for good, in affinity mode: no server is asked,
	// and Distributors, Backups and CacheFile are left empty. The task is that of its name in
	// Static, which has its address if Address is empty, or else owns nothing. It is for tests
	// (slicertest.Assignment), and for programs that are to run without Slicer; a drain of such
	// a task waits until its context ends, as nothing moves its slices.
	Static *assignment.Assignment
	// Leases are what a task of a job in consistent mode holds; nil will do for affinity
	// mode. One Reader serves all slicelets of the process, if they are of different
	// jobs. It is the caller's, which closes it after them.
	Leases *lease.Reader
	// Customer names what a request is charged to, by its context, as its server has it,
	// and the name that its client claims, empty if none or one that is not allowed
	// (assignment.ValidCustomer). It may return an empty name, for none, and must be safe
	// for concurrent use. For a gRPC server it is called when the RPC arrives, with the context
	// of the connection (peer.FromContext, the RPC's metadata), which it must not hold up, and
	// again with that of the interceptors, whose answer counts. nil believes no claim;
	// BelieveCustomer believes them all.
	Customer func(ctx context.Context, claimed string) string
	// Signals say how full the task is where its CPU does not: a queue, a pool of
	// connections. 1 is as full as it may be; above it requests are refused, the least
	// critical first, as far as the job's admission is on. The largest counts, and memory is
	// always one: what lives, of nine tenths of GOMEMLIMIT or of the container's limit.
	// They are called 20 times a second, while requests arrive, and must be quick and safe
	// for concurrent use.
	Signals []func() float64
	// Patience is for how long the client of a request is believed to wait at most: longer
	// deadlines, and none, count as this when it is decided whether there is room; 0 believes
	// all. Where requests wait for something else than the CPU, those that wait for longer
	// leave no room for the others, so set it where clients may choose their deadlines and
	// gain by that, to what requests take or wait for usually, and not below.
	Patience time.Duration
	// Logger may be nil: then it is slog.Default() as it is at New, and for WARN and
	// above only. Silence is slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Registerer takes the slicelet's metrics; nil is none. Slicelets may share one.
	Registerer prometheus.Registerer
	// DialOptions are for the connections to Distributors; none means an insecure
	// transport.
	DialOptions []grpc.DialOption
	// Tracer gets spans of connections to Distributors until they are set up; nil is none.
	Tracer trace.Tracer
}

// task is this incarnation.
func (c *Config) task() assignment.Task {
	t := assignment.Task{
		Name: c.Task, Address: c.Address, Zone: c.Zone, Weight: c.Weight, State: assignment.TaskRunning,
	}
	if t.Weight == 0 {
		t.Weight = 1
	}
	if c.Starting {
		t.State = assignment.TaskStarting
	}
	if c.Static != nil {
		if pos, ok := c.Static.Position(c.Task); ok {
			known := c.Static.Task(pos)
			t.Incarnation, t.Address = known.Incarnation, cmp.Or(t.Address, known.Address)
		}
	}
	for t.Incarnation == 0 {
		t.Incarnation = rand.Uint64()
	}
	return t
}

func (c *Config) validate() error {
	if err := assignment.ValidateJobName(c.Job); err != nil {
		return err
	}
	t := c.task()
	if err := t.Validate(); err != nil {
		return err
	}
	if c.Patience < 0 {
		return &assignment.FieldError{Field: "patience", Value: c.Patience, Allowed: "0 or more"}
	}
	host, port, err := net.SplitHostPort(t.Address)
	// With the address of a server that listens on all interfaces each client would call
	// itself.
	if err != nil || anyHost(host) || port == "0" {
		return &assignment.FieldError{Field: "task address", Value: t.Address, Allowed: "host:port as clients dial it, not every interface (0.0.0.0, [::]) unless the environment's SLICER_ADDRESS or POD_IP tells which, and not port 0"}
	}
	return nil
}

// What errors of Ready and Drain may match.
var (
	ErrUnknownJob    = subscriber.ErrUnknownJob    // the store says that there is no such job
	ErrTaskNameTaken = subscriber.ErrTaskNameTaken // another live task of the job has this name
	ErrNotAllowed    = subscriber.ErrNotAllowed    // the identity in our certificate may not be this task of the job
	ErrUnavailable   = subscriber.ErrUnavailable   // no server answers, or none has an assignment yet
	ErrClosed        = subscriber.ErrClosed
)

// ErrConsistent: the job is in consistent mode, in which a task that holds no
// lease owns nothing, and Config.Leases is nil.
var ErrConsistent = errors.New("job is in consistent mode, which takes leases")
