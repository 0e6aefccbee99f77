package clerkgrpc

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
)

// Build is resolver.Builder's: it begins to follow the job's assignment.
func (s *source) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	if err := assignment.ValidateJobName(name); err != nil {
		return nil, fmt.Errorf("clerkgrpc: target %q: %w", target.String(), err)
	}
	j, err := s.acquire(name)
	if err != nil {
		return nil, fmt.Errorf("clerkgrpc: %w", err)
	}
	r := &follower{source: s, name: name, job: j, cc: cc, stop: make(chan struct{})}
	r.wg.Go(r.follow)
	return r, nil
}

// Scheme is resolver.Builder's.
func (s *source) Scheme() string { return Scheme }

// follower is a resolver: it hands each new subset, and the assignment that it is
// of, to the balancer.
type follower struct {
	source *source
	name   string
	job    *job
	cc     resolver.ClientConn
	stop   chan struct{}
	wg     sync.WaitGroup
}

func (f *follower) follow() {
	for {
		changed := f.job.clerk.Changed()
		if subset := f.job.clerk.Subset(); subset != nil {
			// The balancer takes any state; errors are those of others, which users may
			// have chosen instead.
			_ = f.cc.UpdateState(resolver.State{
				Endpoints:  endpoints(subset),
				Attributes: attributes.New(clerkStateKey{}, &clerkState{source: f.source, job: f.job, subset: subset}),
			})
		}
		select {
		case <-changed:
		case <-f.stop:
			return
		}
	}
}

// endpoints are for balancers other than this package's, which know nothing of
// keys: the running tasks of the subset.
func endpoints(s *clerk.Subset) []resolver.Endpoint {
	out := make([]resolver.Endpoint, 0, s.Len())
	for _, t := range s.Tasks() {
		if t.State == assignment.TaskRunning {
			out = append(out, resolver.Endpoint{Addresses: []resolver.Address{{Addr: t.Address}}})
		}
	}
	return out
}

// clerkStateKey is the attribute under which a resolver state carries *clerkState.
type clerkStateKey struct{}

// clerkState is what the resolver gives a balancer.
type clerkState struct {
	source *source
	job    *job
	subset *clerk.Subset
}

// ResolveNow is resolver.Resolver's. There is nothing to ask: changes arrive by
// itself.
func (f *follower) ResolveNow(resolver.ResolveNowOptions) {}

// Close is resolver.Resolver's.
func (f *follower) Close() {
	close(f.stop)
	f.wg.Wait()
	_ = f.source.release(f.name, f.job)
}
