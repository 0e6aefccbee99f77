package clerkgrpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	_ "google.golang.org/grpc/health" // clients of servers that tell their health

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/protokey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// Scheme of the targets: "slicer:///job".
const Scheme = "slicer"

const (
	// KeyHeader is the metadata that carries the key to the server, where Config
	// does not name another. A key that is not printable ASCII, that begins or ends
	// with a space, or that has a percent sign travels in the same with "-bin" behind
	// it.
	KeyHeader = "slicer-key"
	// GenerationHeader is the metadata that carries the generation of the assignment that an RPC
	// was routed by, in decimal: of each stream, and of the first unary RPC on a connection by
	// each generation, and one each quarter of Config.IdleClose.
	GenerationHeader = "slicer-generation"
	// AttemptHeader is the metadata that says how often an RPC has been sent before since
	// a task had no room for it or died, in decimal. First attempts do not carry it.
	AttemptHeader = "slicer-attempt"
	// CriticalityHeader, CohortHeader and CustomerHeader are the metadata that carry the
	// labels of an RPC (overload.LabelsOf, clerk.Config.Criticality), each where there is
	// one.
	CriticalityHeader = "slicer-criticality"
	CohortHeader      = "slicer-cohort"
	CustomerHeader    = "slicer-customer"
	// LevelHeader is the trailing metadata by which a task says which RPCs it refuses, and
	// StandsForHeader marks those of them that are sent all the same, now and then
	// (overload.TaskLevel). DrainingHeader is the trailing metadata of a task that drains.
	LevelHeader     = "slicer-level"
	StandsForHeader = "slicer-stands-for"
	DrainingHeader  = "slicer-draining"
)

// Keyless says what becomes of an RPC that has no key.
type Keyless uint8

const (
	// RefuseKeyless fails it with INVALID_ARGUMENT before it is sent.
	RefuseKeyless Keyless = iota
	// AnyTask sends it to any task of the subset, by Config.Policy.
	AnyTask
)

// silence is how long a task may leave unacknowledged what was sent to it before
// its connection is given up, and the RPCs on it fail with UNAVAILABLE.
const silence = 2 * time.Second

// DefaultIdleClose is how long a connection outside the subset may be unused, and a client
// inactive.
const DefaultIdleClose = 2 * time.Minute

// Config says how RPCs are routed. Give either Clerk or Shared.
type Config struct {
	// Clerk says which servers know the job: Distributors and all else that a clerk
	// takes. Its Job is that of the target and is left empty here. Connections made with
	// one call's DialOptions to one job share a clerk, which is closed with the last of
	// them.
	Clerk clerk.Config
	// Shared is a clerk of the caller's, which closes it after the connections. Of Clerk
	// only the Registerer counts then: it takes this package's metrics.
	Shared *clerk.Clerk

	// The key of an RPC is the one of clerk.WithKey; else the value of the outgoing
	// metadata Header, unless Header is empty or there is none; else what Key returns,
	// unless it is nil or returns false; else what is in the first of KeyFields that the
	// request has. Key gets the full method, such as "/helloworld.Greeter/SayHello", and the
	// request, nil for a stream. It must be safe for concurrent use.
	Header string
	Key    func(method string, request any) (key string, ok bool)
	// KeyFields are paths of fields of requests, such as "user_id" or "user.id": see package
	// protokey. Of streams there is no request. With the same in sliceletgrpc.Config, SendKey "-"
	// and no call of clerk.WithKey, which would take precedence here and not be known there,
	// hardly any unary RPC has metadata, which is the fastest.
	KeyFields []string
	// Keyless says what becomes of RPCs without a key.
	Keyless Keyless
	// SendKey names the metadata that carries the key to the server, lower case;
	// empty stands for KeyHeader. "-" sends none, for servers that find the key in
	// Header or in the request.
	SendKey string

	// Policy chooses among the owners of a slice, and among all tasks of the subset
	// for RPCs without a key. The default is policy.WeightedLeastLoaded.
	Policy policy.Kind
	// IdleClose is how long a connection to a task outside the subset may be unused
	// before it is closed, and how long nothing may be sent to any task, and nothing be under
	// way, before those to the subset are, too: 1 s to 24 h, 0 stands for DefaultIdleClose.
	IdleClose time.Duration
	// HealthCheck has gRPC's health service asked on each connection: a task that says
	// NOT_SERVING gets no new RPCs. gRPC logs an error for servers that do not have
	// the service; they count as healthy.
	HealthCheck bool
	// ServiceConfig is a gRPC service config in JSON, for what else it can say:
	// timeouts, retries (each picks anew), the service name of health checks. Unary
	// RPCs that it has retried on UNAVAILABLE may be carried out twice, as those of
	// clerk.WithIdempotent, and so do not wait either for a task that is said to be dead
	// before it has answered.
	ServiceConfig string
	// DynamicWindows leaves it to gRPC how much a task may send ahead of what is read: it measures
	// what is under way at a time, by a ping each round trip, up to 16 MiB. That is for much data over
	// long distances. Otherwise it is 1 MiB for a stream and 16 MiB for a connection, and there are
	// no pings, which take more of the CPU time of a small RPC than the rest of this package.
	DynamicWindows bool
	// Authority is the name that a task's certificate must be for; nil stands for
	// the job's name.
	Authority func(assignment.Task) string
}

// The windows of a stream and of a connection, bytes. A megabyte a round trip is 1 GB/s within a data
// center. What arrives on a connection does not wait to be read to make room on it again, so its window
// bounds no memory.
const (
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
)

// Validate names the first field that is not allowed (*assignment.FieldError). An
// RPC through a config that is not allowed fails with FAILED_PRECONDITION, one to a
// target whose job name is not allowed with UNAVAILABLE.
func (c Config) Validate() error {
	bad := func(field string, value any, allowed string) error {
		return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
	}
	switch {
	case c.Shared != nil && (len(c.Clerk.Distributors)+len(c.Clerk.Backups) > 0 || c.Clerk.Static != nil):
		return bad("shared", "and clerk", "one of both")
	case c.Shared == nil && len(c.Clerk.Distributors)+len(c.Clerk.Backups) == 0 && c.Clerk.Static == nil:
		return bad("clerk.distributors", "", "at least one, or a shared clerk")
	case c.Clerk.Job != "":
		return bad("clerk.job", c.Clerk.Job, "empty: the job is that of the target")
	case !validHeader(c.Header, true):
		return bad("header", c.Header, headerAllowed)
	case c.SendKey != "-" && (!validHeader(c.SendKey, true) || strings.HasSuffix(c.SendKey, binSuffix)):
		return bad("send_key", c.SendKey, headerAllowed+", without -bin at the end, or a single -")
	case c.Keyless > AnyTask:
		return bad("keyless", uint8(c.Keyless), "RefuseKeyless or AnyTask")
	case !c.Policy.Valid():
		return bad("policy", uint8(c.Policy), policy.Kinds)
	case c.IdleClose != 0 && (c.IdleClose < time.Second || c.IdleClose > 24*time.Hour):
		return bad("idle_close", c.IdleClose, "1s to 24h")
	}
	if len(c.KeyFields) > 0 {
		if _, err := protokey.New(c.KeyFields...); err != nil {
			return err
		}
	}
	if c.Shared == nil {
		clerk := c.Clerk
		clerk.Job = "job" // that of the target is looked at when it is dialled
		if err := clerk.Validate(); err != nil {
			return fmt.Errorf("clerk: %w", err)
		}
	}
	_, err := c.serviceConfig()
	return err
}

const (
	binSuffix     = "-bin"
	headerAllowed = "1 to 128 lower-case letters, digits, -, _ and ., not beginning with grpc-"
)

func validHeader(name string, orEmpty bool) bool {
	if name == "" {
		return orEmpty
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return len(name) <= 128 && !strings.HasPrefix(name, "grpc-")
}

// serviceConfig is the user's, with this package's balancing in it. Health checks
// are of the whole server unless it says otherwise.
func (c Config) serviceConfig() (string, error) {
	user, fields := c.ServiceConfig, map[string]json.RawMessage{}
	if c.HealthCheck {
		fields["healthCheckConfig"] = json.RawMessage(`{"serviceName":""}`)
	}
	if user != "" {
		if err := json.Unmarshal([]byte(user), &fields); err != nil {
			return "", fmt.Errorf("%w: %w", &assignment.FieldError{Field: "service_config", Value: user, Allowed: "a JSON object"}, err)
		}
		for _, name := range []string{"loadBalancingConfig", "loadBalancingPolicy"} {
			if _, ok := fields[name]; ok {
				return "", &assignment.FieldError{Field: "service_config." + name, Value: "set", Allowed: "absent: see Config.Policy"}
			}
		}
	}
	if fields == nil { // JSON's null
		return "", &assignment.FieldError{Field: "service_config", Value: user, Allowed: "a JSON object"}
	}
	fields["loadBalancingConfig"] = json.RawMessage(`[{"` + balancerName + `":{}}]`)
	out, err := json.Marshal(fields)
	return string(out), err
}

func (c Config) withDefaults() Config {
	if c.IdleClose == 0 {
		c.IdleClose = DefaultIdleClose
	}
	switch c.SendKey {
	case "":
		c.SendKey = KeyHeader
	case "-":
		c.SendKey = ""
	}
	return c
}

// DialOptions returns what grpc.NewClient needs for targets "slicer:///job", in
// front of options of the caller's own, which win: credentials, keepalive, more
// interceptors. Do not set an idle timeout: an idle gRPC channel closes its warm
// connections and its clerk, if that is not Config.Shared.
func DialOptions(cfg Config) []grpc.DialOption {
	s := newSource(cfg)
	opts := []grpc.DialOption{
		grpc.WithResolvers(s),
		grpc.WithChainUnaryInterceptor(s.unary),
		grpc.WithChainStreamInterceptor(s.stream),
		grpc.WithIdleTimeout(0),
		// An owner that cannot be reached is tried again soon: until then others do
		// its work.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: .2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// A task that cannot be reached any more is noticed after silence: of its TCP, if
		// it does not acknowledge what was sent (gRPC makes silence the connection's
		// TCP_USER_TIMEOUT), else within half a minute. Without that, RPCs would go on
		// waiting behind TCP's retransmissions, which become rare, long after the network
		// is whole again.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: silence}),
	}
	if !cfg.DynamicWindows {
		opts = append(opts, grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow))
	}
	if sc, err := cfg.serviceConfig(); err == nil {
		opts = append(opts, grpc.WithDefaultServiceConfig(sc))
	}
	return opts
}
