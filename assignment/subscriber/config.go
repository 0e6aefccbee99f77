package subscriber

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/trace"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Config says what to subscribe to, and where.
type Config struct {
	// Job is the name of the job, an RFC 1123 label.
	Job  string
	Role Role
	// ClientID names the subscriber in the control plane's metrics and errors. Distinct
	// among the job's subscribers: 1 to 128 printable ASCII characters without space or slash.
	ClientID string
	// Zone is where the subscriber runs; may be empty. Servers of the zone are taken first.
	Zone string
	// Task identifies the slicelet; only for slicelets. Index and State are not used.
	Task assignment.Task
	// Parts: the part for Task will do in place of a large assignment (assignment.Cut); only for
	// slicelets.
	Parts bool
	// First is a slicelet's first report, so that even the first hello has one; may
	// be nil.
	First *slicerv1.Report
	// ClientIndex is the index that a clerk has by itself, at most MaxClientIndex. With
	// nil the control plane gives one.
	ClientIndex *uint32
	// Distributors and Backups are host:port, at most 256 each and at least one
	// altogether. A name with several addresses stands for any one of them. Each may have its
	// zone before it, as zone=host:port: then the subscriber goes to one of its own Zone while
	// one of them serves it, and else to any other.
	Distributors, Backups []string
	// CacheFile keeps the newest assignment across restarts, and a clerk's index for
	// the one that has the same ClientID; empty is none.
	CacheFile string
	// Static, if not nil, is the job's assignment for good, in affinity mode: no server is
	// asked, and there is neither one nor a CacheFile.
	Static *assignment.Assignment
	// Observe is called with every change of state, first by New; may be nil. Calls
	// are serial and never overlap with each other. It must not block: the next
	// message waits for it; nor call Report or Close. An assignment is acknowledged
	// only after it returned, so what it puts to use is in use by then.
	Observe func(State)
	// Logger may be nil, which is silent.
	Logger *slog.Logger
	// DialOptions go to gRPC; none means an insecure transport.
	DialOptions []grpc.DialOption
	// Tracer gets spans of connections until they are set up; nil is none.
	Tracer trace.Tracer
}

const (
	maxServers  = 256
	maxClientID = 128
)

// Validate names the first field that is not allowed; the error is a
// *assignment.FieldError.
func (c *Config) Validate() error {
	if err := assignment.ValidateJobName(c.Job); err != nil {
		return err
	}
	switch {
	case c.Role < Clerk || c.Role > Observer:
		return &assignment.FieldError{Field: "role", Value: c.Role, Allowed: "clerk, slicelet or observer"}
	case !assignment.ValidToken(c.ClientID, maxClientID):
		return &assignment.FieldError{Field: "client id", Value: c.ClientID, Allowed: "1 to 128 printable ASCII characters without space or slash"}
	case !validZone(c.Zone):
		return &assignment.FieldError{Field: "zone", Value: c.Zone, Allowed: "at most 63 printable ASCII characters without space or slash"}
	case c.ClientIndex != nil && (c.Role != Clerk || *c.ClientIndex > MaxClientIndex):
		return &assignment.FieldError{Field: "client index", Value: *c.ClientIndex, Allowed: fmt.Sprintf("0 to %d, and only for clerks", MaxClientIndex)}
	case c.Static != nil && c.Static.Job() != c.Job:
		return &assignment.FieldError{Field: "static", Value: c.Static.Job(), Allowed: fmt.Sprintf("an assignment of job %q", c.Job)}
	case c.Static != nil && (len(c.Distributors)+len(c.Backups) > 0 || c.CacheFile != ""):
		return &assignment.FieldError{Field: "static", Value: "set", Allowed: "only without distributors, backups and cache file"}
	case c.Static == nil && len(c.Distributors)+len(c.Backups) == 0:
		return &assignment.FieldError{Field: "distributors", Value: 0, Allowed: "at least one address of a Distributor or a Backup Distributor"}
	}
	if c.Parts && c.Role != Slicelet {
		return &assignment.FieldError{Field: "parts", Value: c.Parts, Allowed: "only for slicelets"}
	}
	if c.Role == Slicelet {
		if err := c.Task.Validate(); err != nil {
			return err
		}
	}
	if err := validateServers("distributors", c.Distributors); err != nil {
		return err
	}
	return validateServers("backups", c.Backups)
}

func validateServers(field string, servers []string) error {
	if len(servers) > maxServers {
		return &assignment.FieldError{Field: field, Value: len(servers), Allowed: fmt.Sprintf("at most %d", maxServers)}
	}
	for _, s := range servers {
		zone, addr := SplitServer(s)
		host, port, err := net.SplitHostPort(addr)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || !assignment.ValidToken(host, 253) || !validZone(zone) {
			return &assignment.FieldError{Field: field, Value: s, Allowed: "host:port or zone=host:port, the port 1 to 65535"}
		}
	}
	return nil
}

// NewClientID makes a random client id that begins with the name given, or with the
// machine's name if that is empty, so that people know what it names.
func NewClientID(name string) string {
	if name == "" {
		name, _ = os.Hostname()
		name, _, _ = strings.Cut(name, ".")
	}
	if name = name[:min(len(name), maxClientID-17)]; !assignment.ValidToken(name, maxClientID) {
		name = "client"
	}
	return fmt.Sprintf("%s-%016x", name, rand.Uint64())
}
