package sliceletgrpc

import (
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/orca"

	"github.com/slicer-project/slicer/assignment/protokey"
	"github.com/slicer-project/slicer/slicelet"
)

const (
	// KeyHeader is the metadata that carries the key, where Config does not name
	// another: as it is or, from slicerproxy, in the form of httpkey.EncodeKey. One
	// that is not printable or has a percent sign of its own is in the same with "-bin"
	// behind it.
	KeyHeader = "slicer-key"
	// GenerationHeader is the metadata that carries the generation of the assignment that the
	// client routed by. What a unary RPC says stands for those after it on its connection that
	// say nothing.
	GenerationHeader = "slicer-generation"
	// AttemptHeader is the metadata that says how often the client has sent the RPC
	// before, decimal; it is left out of first attempts. What gRPC's own retries say
	// (grpc-previous-rpc-attempts) counts as well: the larger of the two.
	AttemptHeader = "slicer-attempt"
	// CriticalityHeader is the metadata that says how critical an RPC is:
	// critical_plus, critical, sheddable_plus or sheddable; for anything else the job's
	// default holds. CohortHeader says its cohort, 0 to 127, and otherwise one is drawn;
	// CustomerHeader what it is charged to, of which slicelet.Config.Customer decides
	// whether it is believed. Package overload has what they mean.
	CriticalityHeader = "slicer-criticality"
	CohortHeader      = "slicer-cohort"
	CustomerHeader    = "slicer-customer"
	// StandsForHeader is the metadata by which a client says that an RPC is a trial
	// request, and for how many it stands: 1 to overload.MostStandsFor, decimal.
	StandsForHeader = "slicer-stands-for"
	// LevelHeader is the trailing metadata by which a task that has no room for all that is
	// asked of it says so: overload.Level.String.
	LevelHeader = "slicer-level"
	// DrainingHeader is the trailing metadata by which a task says that it drains.
	DrainingHeader = "slicer-draining"
	// SliceKeyHeader is the metadata by which stock gRPC clients that are sharded by
	// Slicer's auto-sharding protocol (gRFC A119) are routed, where Config does not name
	// another: a slice key in text form, XXH64(key) >> 1 as exactly 16 lower-case hex
	// digits. It is a key of its own right. An RPC with anything else in it fails with
	// INVALID_ARGUMENT: most of what is not a slice key would find some owner by chance.
	SliceKeyHeader = "slice-key"
)

// Config says how RPCs are looked at. The zero value will do.
type Config struct {
	// The key of an RPC is the value of the metadata Header, or of the same with
	// "-bin" behind it; empty stands for KeyHeader. Else its slice key is the value of
	// the metadata SliceKey, for which empty stands for SliceKeyHeader and "-" for none,
	// for servers to which that name means something else. Else it is what Key returns,
	// unless Key is nil or returns false; else it is what is in the first of KeyFields that the
	// request has, such as "user_id" or "user.id": see package protokey. Key gets the full
	// method, such as "/helloworld.Greeter/SayHello", and the request; of a stream the first one,
	// as KeyFields do. It must be safe for concurrent use. With the same KeyFields in
	// clerkgrpc.Config hardly any unary RPC has metadata, which is the fastest.
	Header    string
	SliceKey  string
	Key       func(method string, request any) (key string, ok bool)
	KeyFields []string
	// RequireKey refuses RPCs without a key with INVALID_ARGUMENT, save those of
	// gRPC's own services, whose names begin with "grpc.". Otherwise they are served,
	// and no load.
	RequireKey bool
	// UncheckedAnswers lets answers of a job in consistent mode out even if the task
	// lost the key while the handler ran. By default they are held back: see the
	// package's documentation.
	UncheckedAnswers bool
	// EndMoved ends streams whose key moves to another task, so that their clients connect to
	// that: MovedGrace after Moved has said so to the handler, 0 for DefaultMovedGrace, the
	// context of the stream ends, with ErrMoved as its cause, nothing is sent or received any
	// more, and the client gets ABORTED with a slicerv1.OwnershipLost, a clerk.Lost. The
	// handler has to return then. A stream that its client has sent here since it was behind is
	// ended in the same way half a second after it has begun. RPCs that are no streams, and
	// streams without a key, go on to their end.
	EndMoved   bool
	MovedGrace time.Duration
	// NoTap leaves gRPC's tap (grpc.InTapHandle), of which a server has one, to the caller,
	// or to another slicelet of the same server. Then no RPC is refused for want of room but
	// by handlers (Overloaded), whatever the job's admission is.
	NoTap bool
	// Utilization is the share of the server's capacity in use, above 0; it may
	// exceed 1. nil stands for the process's CPU as a share of what it may use.
	Utilization func() float64
	// CallMetrics has orca.CallMetricsRecorderFromContext find a recorder in handlers, whose metrics
	// go to clients together with the load. Without, handlers must set no load report of their own.
	CallMetrics bool
	// DynamicWindows leaves it to gRPC how much a client may send ahead of what is read, as
	// clerkgrpc.Config's does for what comes back: otherwise it is 1 MiB for a stream and 16 MiB for a
	// connection.
	DynamicWindows bool
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
}

// The windows of a stream and of a connection, bytes (clerkgrpc.Config.DynamicWindows).
const (
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
)

// workers is for grpc.NumStreamWorkers: how many goroutines wait for RPCs, so that most RPCs need no
// new one, whose stack has to grow each time to what gRPC and a handler need. RPCs beyond have one of
// their own. A connection brings several at once.
func workers() uint32 { return uint32(min(32*runtime.GOMAXPROCS(0), 1024)) }

// either finds what the first finds, if it is not nil, or else the second.
func either(first, second func(string, any) (string, bool)) func(string, any) (string, bool) {
	if first == nil {
		return second
	}
	return func(method string, request any) (string, bool) {
		if key, ok := first(method, request); ok {
			return key, true
		}
		return second(method, request)
	}
}

// ServerOptions returns what grpc.NewServer needs, in front of options of the
// caller's own. It panics if the registerer refuses the metrics, as
// prometheus.MustRegister does, and for KeyFields that are not allowed; one registerer takes one
// server of a task.
func ServerOptions(s *slicelet.Slicelet, cfg Config) []grpc.ServerOption {
	if cfg.Header == "" {
		cfg.Header = KeyHeader
	}
	cfg.Header = strings.ToLower(cfg.Header)
	switch cfg.SliceKey = strings.ToLower(cfg.SliceKey); cfg.SliceKey {
	case "":
		cfg.SliceKey = SliceKeyHeader
	case "-":
		cfg.SliceKey = ""
	}
	if len(cfg.KeyFields) > 0 {
		fields, err := protokey.New(cfg.KeyFields...)
		if err != nil {
			panic("sliceletgrpc: " + err.Error())
		}
		cfg.Key = either(cfg.Key, fields.Find)
	}
	g := &gate{slicelet: s, cfg: cfg, metrics: newMetrics(), bin: cfg.Header + "-bin"}
	g.load.recorder = orca.NewServerMetricsRecorder()
	g.load.source = cfg.Utilization
	if cfg.Utilization == nil {
		g.load.source = s.CPU
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(g.metrics.all()...)
	}
	var opts []grpc.ServerOption
	if cfg.CallMetrics {
		opts = append(opts, orca.CallMetricsServerOption(g.load.recorder))
	}
	opts = append(opts,
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
		// Clients find out that a machine has vanished by asking every 20 s.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.NumStreamWorkers(workers()),
	)
	if !cfg.DynamicWindows {
		opts = append(opts, grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow))
	}
	if !cfg.NoTap {
		opts = append(opts, grpc.InTapHandle(g.tap))
	}
	return opts
}
