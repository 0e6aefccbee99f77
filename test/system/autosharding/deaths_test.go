package autosharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// servers are tasks that serve nothing but know what they own.
type servers struct {
	t     *testing.T
	plane *bed.Plane
	by    map[string]*slicelet.Slicelet // by address
}

func (s *servers) add(name, address string) *slicelet.Slicelet {
	s.t.Helper()
	x, err := slicelet.New(slicelet.Config{Job: job, Task: name, Address: address, Distributors: s.plane.Addrs()})
	if err != nil {
		s.t.Fatal(err)
	}
	bed.CloseAtEnd(s.t, x.Close)
	s.by[address] = x
	return x
}

func (s *servers) addresses() []string { return slices.Sorted(maps.Keys(s.by)) }

// own waits until a client's assignment names just these servers, and checks that
// it leads to where the keys are.
func (s *servers) own(c *client) {
	s.t.Helper()
	want := s.addresses()
	c.until(fmt.Sprintf("slices of %q", want), func(a *autoshardingtest.Assignment, filled []autoshardingtest.Slice) bool {
		if !slices.Equal(slices.Sorted(maps.Keys(owners(a, filled))), want) {
			return false
		}
		// The servers may learn of a generation later, or have learnt of a newer one.
		for i := range 200 {
			key := fmt.Sprintf("user-%d", i)
			found := autoshardingtest.Lookup(filled, assignment.KeyOf(key).String())
			for _, e := range found.Endpoints {
				x := s.by[a.Endpoints[e]]
				limit := time.Now().Add(10 * time.Second)
				for generationOf(x) <= a.Generation && !x.IsAffinitized(key) {
					if time.Now().After(limit) {
						s.t.Fatalf("generation %d: key %s is not at %s", a.Generation, key, a.Endpoints[e])
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
		return true
	})
}

// generationOf is what the server holds, 0 if nothing.
func generationOf(x *slicelet.Slicelet) int64 {
	if a := x.Assignment(); a != nil {
		return int64(a.Generation())
	}
	return 0
}

// A client sees strictly increasing generations across the death of the assigner
// that made them and of the Distributor that brought them.
func TestAcrossDeaths(t *testing.T) {
	t.Parallel()
	p := bed.Start(t, bed.Config{Assigners: 2, Distributors: 2})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := p.PutJob(ctx, assignment.JobConfig{Name: job, HeartbeatTimeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	s := &servers{t, p, make(map[string]*slicelet.Slicelet)}
	s.add("a", "10.0.0.1:80")
	s.add("b", "10.0.0.2:80")
	clients := []*client{newClient(t, "u0", p.Addrs()...), newClient(t, "u1", p.Addrs()[1])}
	settle := func() {
		t.Helper()
		for _, c := range clients {
			s.own(c)
		}
	}
	settle()

	preferred := s.preferred(ctx)
	must(t, p.Assigners[preferred].Stop())
	s.add("c", "10.0.0.3:80")
	settle()
	must(t, p.Assigners[preferred].Restart())

	must(t, p.Distributors[0].Stop())
	s.add("d", "10.0.0.4:80")
	settle()
	// A client that says that it is ahead of a Distributor that holds nothing yet.
	must(t, p.Distributors[0].Restart())
	clients = append(clients, newClient(t, "u2", p.Addrs()[0]))
	must(t, p.Distributors[1].Stop())
	s.add("e", "10.0.0.5:80")
	must(t, p.Distributors[1].Restart())
	settle()

	for _, c := range clients {
		c.mu.Lock()
		var gens []int64
		for _, a := range c.got {
			gens = append(gens, a.Generation)
		}
		if !slices.IsSortedFunc(gens, func(a, b int64) int { return int(a - b) }) || len(slices.Compact(slices.Clone(gens))) != len(gens) {
			t.Errorf("client %s got generations %v", c.uuid, gens)
		}
		t.Logf("client %s: %d assignments on %d streams that ended with %v", c.uuid, len(gens), c.streams, c.ended)
		if c == clients[0] && c.streams < 2 {
			t.Error("no stream has died")
		}
		c.mu.Unlock()
	}
}

// preferred is which assigner takes the decisions.
func (s *servers) preferred(ctx context.Context) int {
	s.t.Helper()
	for {
		r, err := s.inspect(ctx, 0)
		if err == nil && r.Preferred {
			for i := range s.plane.Assigners {
				if r.AssignerId == fmt.Sprintf("assigner-%d", i) {
					return i
				}
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			s.t.Fatalf("no assigner is preferred: %v, %v", r, err)
		}
	}
}

func (s *servers) inspect(ctx context.Context, distributor int) (*slicerv1.InspectJobResponse, error) {
	cc, err := grpc.NewClient(s.plane.Addrs()[distributor], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	return slicerv1.NewAdminServiceClient(cc).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
}

func TestUnknownJob(t *testing.T) {
	t.Parallel()
	p := bed.Start(t, bed.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.PutJob(ctx, assignment.JobConfig{Name: job}); err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient(p.Addrs()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	c, err := autoshardingtest.Watch(ctx, cc, "another", "u", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Next(); status.Code(err) != codes.NotFound {
		t.Errorf("the stream ends with %v, want NOT_FOUND", err)
	}
}

// A client that refuses everything is counted, and holds up no drain.
func TestDrainWithAClientThatRefuses(t *testing.T) {
	t.Parallel()
	p := bed.Start(t, bed.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.PutJob(ctx, assignment.JobConfig{Name: job}); err != nil {
		t.Fatal(err)
	}
	s := &servers{t, p, make(map[string]*slicelet.Slicelet)}
	a := s.add("a", "10.0.0.1:80")
	s.add("b", "10.0.0.2:80")
	good, bad := newClient(t, "good", p.Addrs()...), newClient(t, "bad", p.Addrs()...)
	s.own(good)
	s.own(bad)
	bad.mu.Lock()
	bad.refuses = true
	bad.mu.Unlock()
	if err := a.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	delete(s.by, "10.0.0.1:80")
	s.own(good)
	r, err := s.inspect(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Autosharding) != 1 || r.Autosharding[0].Clients != 2 || r.Autosharding[0].Refusing != 1 || r.Autosharding[0].Nacks == 0 ||
		r.Autosharding[0].LastNack != "told to refuse" || r.Clerks != 1 {
		t.Errorf("inspect shows %v", r)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
