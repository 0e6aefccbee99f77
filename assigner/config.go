package assigner

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/lease"
)

// NamedStore is a store that the assigner serves.
type NamedStore struct {
	// Name is what a job's config calls it. A single store may go without.
	Name string
	// Backend stays the caller's, which closes it after the Assigner.
	Backend store.Backend
	// Leases is where the leases of its jobs in consistent mode are kept, and stays
	// the caller's too. Without it such jobs are refused, and those that are
	// stored already are held. On etcd it is to be in the cluster and below the prefix
	// of the Backend, which then compares the job lease with each write.
	Leases lease.Writers
}

// Config says what an Assigner is.
type Config struct {
	// ID names it among all assigners. Required; printable ASCII without space or slash.
	ID string
	// Zone is where it runs: jobs of this zone prefer it. May be empty.
	Zone string
	// Address is where Distributors reach it, host:port. Required.
	Address string
	// Stores are the stores that it serves, at least one. A job whose config names
	// none is kept in the first.
	Stores []NamedStore
	// LeaseTTL is the longest lease time of the assigner's own session in consistent
	// mode, 1 s to 10 min, default 5 s: after a crash, its jobs in that mode are taken
	// over so much later. It is shorter if a job's lease_duration is: the shortest of
	// the jobs that are led under the session counts.
	LeaseTTL time.Duration
	// Compact makes the assigner compact etcd: what was overwritten or deleted so long ago
	// goes, 10 s to 24 h. That is for all users of the cluster. 0 leaves it to etcd, whose
	// own flags say how; the assigner warns when nothing does it.
	Compact time.Duration
	// Rights say what callers of AdminService may do, and which peers may attach as
	// Distributors. Nil lets everyone do everything.
	Rights *enforce.Rights
	// Logger is silent if nil.
	Logger *slog.Logger
	// Registerer takes the metrics, none if nil. Several assigners may share one:
	// their metrics have a label assigner.
	Registerer prometheus.Registerer
	// Tracer gets spans of orders, of rounds, and of Distributors' streams until they are set
	// up; nil is none.
	Tracer trace.Tracer

	// alwaysPreferred makes a test's assigner take itself for preferred.
	alwaysPreferred bool
}

// check fills in what may be left out and names the first field that is not allowed.
func (c *Config) check() error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 5 * time.Second
	}
	if err := c.candidate().Validate(); err != nil {
		return err
	}
	if err := lease.CheckTTL(c.LeaseTTL); err != nil {
		return err
	}
	if err := CheckCompact(c.Compact); err != nil {
		return err
	}
	if len(c.Stores) == 0 {
		return &assignment.FieldError{Field: "stores", Value: 0, Allowed: "at least one"}
	}
	seen := make(map[string]bool)
	for _, s := range c.Stores {
		switch {
		case s.Backend == nil:
			return &assignment.FieldError{Field: "stores", Value: s.Name, Allowed: "stores that are open"}
		case seen[s.Name]:
			return &assignment.FieldError{Field: "stores", Value: s.Name, Allowed: "distinct names"}
		case len(s.Name) > assignment.MaxZoneLen:
			return &assignment.FieldError{Field: "stores", Value: s.Name, Allowed: "names of at most 63 bytes"}
		}
		seen[s.Name] = true
	}
	return nil
}

func (c *Config) candidate() store.Candidate {
	return store.Candidate{ID: c.ID, Address: c.Address, Zone: c.Zone}
}
