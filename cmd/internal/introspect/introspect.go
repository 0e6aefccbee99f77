// Package introspect is what tools ask of any gRPC server of ours: its health
// (grpc.health.v1), which is that of /readyz, for all; and its services' descriptors (server
// reflection) and connections (channelz), for administrators of the policy, or without a
// policy for callers on this machine.
//
// It is apart from package run, since a proxy has none of it: it passes such calls on to
// those who are behind it. And a program that links it has channelz turned on, for which gRPC has
// no switch, and which may cost a Distributor some CPU with each message: a change to 1,000
// subscribers took 86 ms of CPU without it and 88 with it, the means of five runs each, in turns,
// which differ by up to 20 (BenchmarkFanOut).
package introspect

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/slicer-project/slicer/assignment/access/enforce"
)

// Config says what is told, and to which callers.
type Config struct {
	// Ready is nil when the process can do its work. It is called often, by several
	// goroutines at a time.
	Ready func() error
	// Rights are those of the process; nil lets callers on this machine alone.
	Rights *enforce.Rights
}

// Services are those of one process, for any number of its servers.
type Services struct {
	cfg  Config
	quit chan struct{}
	once sync.Once
}

// New makes them.
func New(cfg Config) *Services { return &Services{cfg: cfg, quit: make(chan struct{})} }

// After returns what registers all services of a server: its own, and these. It is for a
// *grpc.Server, or another registrar that can tell what it has.
func (s *Services) After(own func(grpc.ServiceRegistrar)) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		own(r)
		s.register(r.(reflection.GRPCServer))
	}
}

func (s *Services) register(r reflection.GRPCServer) {
	names := []string{""}
	for name := range r.GetServiceInfo() {
		names = append(names, name)
	}
	slices.Sort(names)
	healthv1.RegisterHealthServer(r, &health{services: names, ready: s.cfg.Ready, quit: s.quit})
	guarded := &guarded{r, s.cfg.Rights}
	reflection.RegisterV1(guarded)
	channelz.RegisterChannelzServiceToServer(guarded)
}

// Close ends the streams that watch the health, and has each that begins end at once: a
// server that stops waits for its streams.
func (s *Services) Close() { s.once.Do(func() { close(s.quit) }) }

// guarded is a server, each method of which asks for an administrator.
type guarded struct {
	reflection.GRPCServer
	rights *enforce.Rights
}

// RegisterService registers the service with its methods guarded.
func (g *guarded) RegisterService(of *grpc.ServiceDesc, impl any) {
	desc := *of
	desc.Methods, desc.Streams = slices.Clone(of.Methods), slices.Clone(of.Streams)
	for i, m := range of.Methods {
		desc.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			if err := g.check(ctx, of, m.MethodName); err != nil {
				return nil, err
			}
			return m.Handler(srv, ctx, dec, interceptor)
		}
	}
	for i, m := range of.Streams {
		desc.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			if err := g.check(stream.Context(), of, m.StreamName); err != nil {
				return err
			}
			return m.Handler(srv, stream)
		}
	}
	g.GRPCServer.RegisterService(&desc, impl)
}

func (g *guarded) check(ctx context.Context, of *grpc.ServiceDesc, method string) error {
	service := of.ServiceName[strings.LastIndexByte(of.ServiceName, '.')+1:]
	return g.rights.CheckAdmin(g.rights.Peer(ctx), service+"/"+method)
}
