package distributor

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/trace"
	"github.com/slicer-project/slicer/distributor/autosharding"
)

// Config says what a Distributor needs to know.
type Config struct {
	// ID names this Distributor among all others, as logs and assigners do: at
	// most 253 printable ASCII characters without space or slash. Default: random.
	ID string
	// Zone is where it runs; may be empty. At most 63 characters of the same kind.
	Zone string
	// Assigners are host:port, at least one, unless there are Upstreams. A DNS name with several addresses
	// stands for all of them, is looked up again every half a minute, and if it
	// has addresses of both families only the IPv4 ones are used. Assigners that
	// these tell of are connected to as well.
	Assigners []string
	// Upstreams make it a Distributor of the second tier, which has no connection to
	// assigners: they are host:port of Distributors of the first, names as above, and
	// take the place of Assigners. See the package's documentation.
	Upstreams []string
	// ServeDistributors makes it serve Distributors of the second tier, if it is of the
	// first itself. They speak with the assigners through it, as Distributors that may
	// say anything about tasks: with it, anyone who may call this Distributor can do what
	// otherwise takes a connection to an assigner, unless Rights have a policy, which names them.
	ServeDistributors bool
	// Rights say which peers may own and watch jobs, and which may be Distributors of the
	// second tier. nil allows everything to all.
	Rights *enforce.Rights
	// AutoshardingEndpoint says what clients of gRPC's auto-sharding protocol call a
	// task: "address" (the default), "name", or "name." and a suffix. See
	// autosharding.Config.
	AutoshardingEndpoint string
	// Logger may be nil: silent.
	Logger *slog.Logger
	// Registerer may be nil: no metrics. All metrics carry the label
	// "distributor", the ID, so that several can share one.
	Registerer prometheus.Registerer
	// DialOptions for the connections to assigners or Upstreams, such as transport
	// credentials. Default: insecure transport.
	DialOptions []grpc.DialOption
	// Tracer gets spans of streams, from subscribers and to assigners or Upstreams, until they
	// are set up; nil is none.
	Tracer trace.Tracer
}

func (c Config) withDefaults() Config {
	if c.ID == "" {
		var b [8]byte
		rand.Read(b[:])
		c.ID = "distributor-" + hex.EncodeToString(b[:])
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns a *assignment.FieldError for the first field that is not allowed.
func (c Config) validate() error {
	const token = "at most %d printable ASCII characters without space or slash"
	switch {
	case c.ID != "" && !assignment.ValidToken(c.ID, assignment.MaxNameLen):
		return &assignment.FieldError{Field: "ID", Value: c.ID, Allowed: fmt.Sprintf(token, assignment.MaxNameLen)}
	case c.Zone != "" && !assignment.ValidToken(c.Zone, assignment.MaxZoneLen):
		return &assignment.FieldError{Field: "Zone", Value: c.Zone, Allowed: fmt.Sprintf(token, assignment.MaxZoneLen)}
	case len(c.Assigners)+len(c.Upstreams) == 0:
		return &assignment.FieldError{Field: "Assigners", Value: "", Allowed: "at least one host:port, or Upstreams in their place"}
	case len(c.Assigners) > 0 && len(c.Upstreams) > 0:
		return &assignment.FieldError{Field: "Upstreams", Value: strings.Join(c.Upstreams, ","), Allowed: "none where there are Assigners"}
	case c.ServeDistributors && len(c.Upstreams) > 0:
		return &assignment.FieldError{Field: "ServeDistributors", Value: "true", Allowed: "false where there are Upstreams: there is no third tier"}
	}
	if err := autosharding.CheckEndpoint("AutoshardingEndpoint", c.AutoshardingEndpoint); err != nil {
		return err
	}
	if err := checkAddresses("Assigners", c.Assigners); err != nil {
		return err
	}
	return checkAddresses("Upstreams", c.Upstreams)
}

func checkAddresses(field string, addresses []string) error {
	for i, a := range addresses {
		if _, _, err := splitHostPort(a); err != nil {
			return &assignment.FieldError{Field: fmt.Sprintf("%s[%d]", field, i), Value: a, Allowed: "host:port"}
		}
	}
	return nil
}

func splitHostPort(s string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(s)
	if err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", "", fmt.Errorf("%q is not host:port", s)
	}
	return host, port, nil
}
