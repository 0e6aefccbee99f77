// Package onecore offers gRPC servers of one core each more than they can do, in turns within
// one run, and measures what each makes of it. Servers are processes of their own that share
// a core, one of them being offered something at a time; the load and a control plane have the
// other one. Requests come at times that were drawn before, whatever becomes of them, and
// latency counts from those times.
//
// Rates and milliseconds differ between machines and hours, so what is compared is answers in
// time for each CPU-second of the server, divided by those of the same server at the least
// load of the same turn, and the CPU time that it used, divided by that of a server without
// admission in the same turn.
package onecore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// Kind is a kind of server, each being a job of its own.
type Kind struct {
	// Name is also the job's.
	Name string
	// Options makes the server's options, in its process; nil is for none. end, which may be
	// nil, is called when the server has ended.
	Options func(Place) (opts []grpc.ServerOption, end func(), err error)
	// Dial connects a client; nil is for clients that do not know Slicer, but send criticality
	// and cohort as headers.
	Dial func(Place) (*grpc.ClientConn, error)
}

// Place is where a server is, and what it is a task of.
type Place struct {
	Job, Addr    string
	Distributors []string
}

// Config says what is offered to which servers.
type Config struct {
	// Kinds are the servers, the first of which is without admission.
	Kinds []Kind
	// Takes is the CPU time of a request.
	Takes []time.Duration
	// Loads are what is offered, 1 being what one core can do without overhead. The first
	// is the least.
	Loads []float64
	// Mix is what shares of a load are sheddable, sheddable_plus, critical and critical_plus;
	// nil is .2, .2, .5 and .1.
	Mix func(load float64) [4]float64
	// Cell is how long each load is offered.
	Cell time.Duration
	// Turns is how often each server is measured.
	Turns int
}

// Nothing is a server without admission.
func Nothing() Kind { return Kind{Name: "nothing"} }

// Limit is a server that refuses what comes while so many requests are under way, in an
// interceptor.
func Limit(n int) Kind {
	return Kind{Name: "limit", Options: func(Place) ([]grpc.ServerOption, func(), error) {
		room := make(chan struct{}, n)
		return []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
				return handler(ctx, req)
			default:
				return nil, status.Errorf(codes.ResourceExhausted, "%d are under way", n)
			}
		})}, nil, nil
	}}
}

// Slicer is a server with this project's admission.
func Slicer(name string) Kind {
	return Kind{Name: name, Options: func(p Place) ([]grpc.ServerOption, func(), error) {
		s, err := slicelet.New(slicelet.Config{Job: p.Job, Task: "burner", Address: p.Addr, Distributors: p.Distributors})
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			_ = s.Close()
			return nil, nil, err
		}
		return sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{}), func() { _ = s.Close() }, nil
	}}
}

// Run measures all servers with all loads, each as a benchmark of its own, and prints medians
// over the turns at the end. The test's TestMain has called Serve with the same kinds.
func Run(b *testing.B, cfg Config) {
	Apart(b)
	plane := bed.Start(b, bed.Config{})
	for _, k := range cfg.Kinds {
		job := assignment.JobConfig{Name: k.Name, Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
		if err := plane.PutJob(b.Context(), job.WithDefaults()); err != nil {
			b.Fatal(err)
		}
	}
	for _, takes := range cfg.Takes {
		var all []sample
		for turn := range cfg.Turns {
			all = append(all, cfg.turn(b, plane, takes, turn)...)
		}
		fmt.Printf("Requests of %v, medians of %d turns of %v a cell.\n%s", takes, cfg.Turns, cfg.Cell, table(all))
	}
}

// turn measures each server once with each load.
func (cfg *Config) turn(b *testing.B, plane *bed.Plane, takes time.Duration, turn int) (all []sample) {
	base := map[string]float64{} // answers in time a CPU-second, at the least load
	servers := map[string]*process{}
	for _, k := range cfg.Kinds {
		p := startProcess(b, Place{Job: k.Name, Distributors: plane.Addrs()}, takes)
		defer p.Stop()
		servers[k.Name] = p
	}
	for _, load := range cfg.Loads {
		mix := [4]float64{.2, .2, .5, .1}
		if cfg.Mix != nil {
			mix = cfg.Mix(load)
		}
		var used time.Duration // by the server without admission
		for i, k := range cfg.Kinds {
			var s sample // the last, if the benchmark is run again
			b.Run(fmt.Sprintf("takes=%v/load=%v/server=%s", takes, load, k.Name), func(b *testing.B) {
				p := servers[k.Name]
				dial := dialPlain
				if k.Dial != nil {
					dial = k.Dial
				}
				r := p.offer(b, dial, uint64(turn), load/takes.Seconds(), mix, cfg.Cell)
				perCPU := float64(r.good()) / r.cpu.Seconds()
				if load == cfg.Loads[0] {
					base[k.Name] = perCPU
				}
				if i == 0 {
					used = r.cpu
				}
				s = r.sample(perCPU, base[k.Name], used)
				s.server, s.load = k.Name, load
				s.report(b)
				r.report(b)
			})
			if s.server != "" {
				all = append(all, s)
			}
		}
	}
	return all
}
