package autosharding

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
)

// Config says what a Service needs to know.
type Config struct {
	// Source is where assignments come from.
	Source Source
	// Endpoint says what clients call a task, which has to be what their resolver
	// calls it (an endpoint's hostname attribute, failing that its first address):
	// EndpointAddress, EndpointName, "name." and a suffix, for the task's name with that
	// suffix behind a dot, such as name.web.default.svc.cluster.local, or a host and
	// "/address", as grpc-java prints an address: web.example/address stands for
	// web.example/10.1.2.3:8080, and /address for /10.1.2.3:8080. Several of these,
	// separated by commas and MaxNames at most, give each task several names, of which a
	// client takes those that it knows. Default: EndpointAddress.
	Endpoint string
	// Logger may be nil: silent.
	Logger *slog.Logger
	// Registerer may be nil: no metrics.
	Registerer prometheus.Registerer
}

// What Config.Endpoint may be.
const (
	EndpointAddress = "address"
	EndpointName    = "name"
)

// MaxNames is how many names a task may have.
const MaxNames = 4

// Source is where assignments come from, and what counts which client holds which: a
// Distributor.
type Source interface {
	// Join enters a client of a job under a name that logs can bear, with the
	// generation that it says it holds, 0 if none. The error, a gRPC status, ends
	// the client's stream.
	Join(ctx context.Context, job, name string, held assignment.Generation) (Feed, error)
}

// Feed is what one client gets of its job, until Leave. All methods are safe for
// concurrent use; what is said after Leave is ignored.
type Feed interface {
	// Newest is the job's newest assignment, nil if there is none. It is worth
	// asking again when changed is closed, and after a while if that is not 0. The
	// error, a gRPC status, ends the client's stream.
	Newest(now time.Time) (a *assignment.Assignment, changed <-chan struct{}, again time.Duration, err error)
	// Metric is the job's load metric.
	Metric() string
	// Unmeasured reports whether there are tasks, and none has measured load itself.
	Unmeasured() bool
	// Holds says that the client uses a generation that it was sent.
	Holds(now time.Time, g assignment.Generation)
	// Refuses says that the client goes on with what it held: until it says Holds again
	// nothing is to wait for it.
	Refuses(now time.Time)
	// Report takes how much the client has sent to each endpoint.
	Report(now time.Time, r *Report)
	Leave(now time.Time)
}

// CheckEndpoint says why a value is not allowed for Config.Endpoint; the error is
// a *assignment.FieldError for the field of that name, or nil.
func CheckEndpoint(field, value string) error {
	_, err := namings(field, value)
	return err
}

// naming is what a task is called.
type naming func(assignment.Task) string

// namings are what each task is called.
func namings(field, value string) (all []naming, err error) {
	seen := map[string]bool{}
	for one := range strings.SplitSeq(value, ",") {
		n := namingOf(one)
		if n == nil || seen[one] || len(all) == MaxNames || value != "" && one == "" {
			return nil, &assignment.FieldError{Field: field, Value: value,
				Allowed: fmt.Sprintf("1 to %d different ones of %s, %s, %s.SUFFIX, /%s and HOST/%s, separated by commas; suffix and host of at most %d printable ASCII characters without space or slash",
					MaxNames, EndpointAddress, EndpointName, EndpointName, EndpointAddress, EndpointAddress, assignment.MaxNameLen)}
		}
		seen[one] = true
		all = append(all, n)
	}
	return all, nil
}

// namingOf is nil for what is not allowed.
func namingOf(value string) naming {
	suffix, suffixed := strings.CutPrefix(value, EndpointName+".")
	host, hosted := strings.CutSuffix(value, "/"+EndpointAddress)
	switch {
	case value == "" || value == EndpointAddress:
		return func(t assignment.Task) string { return t.Address }
	case value == EndpointName:
		return func(t assignment.Task) string { return t.Name }
	case hosted && (host == "" || assignment.ValidToken(host, assignment.MaxNameLen)):
		return func(t assignment.Task) string { return host + "/" + t.Address }
	case suffixed && assignment.ValidToken(suffix, assignment.MaxNameLen):
		return func(t assignment.Task) string { return t.Name + "." + suffix }
	}
	return nil
}
