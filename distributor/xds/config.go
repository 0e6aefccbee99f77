package xds

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
)

// Config says what a Service needs to know.
type Config struct {
	// Source is where assignments come from.
	Source Source
	// ID is what answers call this server; may be empty.
	ID string
	// Logger may be nil: silent.
	Logger *slog.Logger
	// Registerer may be nil: no metrics.
	Registerer prometheus.Registerer
}

// Terms are what a job's config says of its xDS clients.
type Terms struct {
	// Consistent: the job is in consistent mode.
	Consistent bool
	// Config has its defaults.
	Config assignment.XDSConfig
}

// Source is where assignments come from, and what counts which client holds which: a
// Distributor.
type Source interface {
	// Join enters a client of a job under a name that logs can bear, as one that nothing
	// waits for. The error is a gRPC status: NOT_FOUND says that there is no such job; any
	// other ends the client's stream.
	Join(ctx context.Context, job, name string) (Feed, error)
}

// Feed is what one client gets of one job, until Leave. All methods are safe for concurrent
// use; what is said after Leave is ignored.
type Feed interface {
	// Newest is the job's newest assignment, nil if there is none. It is worth asking again
	// when changed is closed, and after a while if that is not 0. The error is as that of
	// Join.
	Newest(now time.Time) (a *assignment.Assignment, changed <-chan struct{}, again time.Duration, err error)
	// Terms are what the job's config says of xDS clients.
	Terms() Terms
	// Holds says that the client is to be waited for, and routes by a generation, 0 for none.
	Holds(now time.Time, g assignment.Generation)
	// Refuses says that the client goes on with what it held, and Observes that it has not
	// asked for routes: until Holds nothing is to wait for it.
	Refuses(now time.Time)
	Observes(now time.Time)
	Leave(now time.Time)
}
