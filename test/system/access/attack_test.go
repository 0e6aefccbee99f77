package access

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// seen is what honest peers see of a while.
type seen struct {
	joins   int
	slowest time.Duration
	last    *assignment.Assignment
}

// look joins again and again until over is closed.
func (b *bed) look(where string, over <-chan struct{}) (s seen) {
	b.t.Helper()
	for {
		a, took, err := b.join(b.at[where])
		if err != nil {
			b.t.Errorf("an honest join failed after %s: %v", took, err)
		} else {
			s.last = a
		}
		s.joins, s.slowest = s.joins+1, max(s.slowest, took)
		select {
		case <-over:
			return s
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// moved is how many of a thousand keys have another owner.
func moved(was, is *assignment.Assignment) (n int) {
	for i := range uint64(1000) {
		key := assignment.SliceKey(i * (uint64(assignment.KeyspaceEnd) / 1000))
		if was.Lookup(key).At(0).Name != is.Lookup(key).At(0).Name {
			n++
		}
	}
	return n
}

// hello is one of a task of job cache that the stranger is not.
func helloOf(name string, incarnation uint64, weight float64, state slicerv1.TaskState) *slicerv1.Hello {
	return &slicerv1.Hello{Job: cacheJob, Role: slicerv1.Role_ROLE_SLICELET, ClientId: "stranger",
		Task:   &slicerv1.Task{Name: name, Incarnation: incarnation, Address: "127.0.0.1:9", Weight: weight, State: state},
		Report: &slicerv1.Report{Sequence: 1 << 60, State: state}}
}

// TestAttacks: with a certificate of the authority a stranger tries what did harm before
// there were rights, each time with honest joins before, during and after it. All of it is
// refused; no task dies, no key changes its owner, no honest call or join fails.
func TestAttacks(t *testing.T) {
	b := everything(t)
	for _, where := range []string{atServe, atSecond} {
		t.Run(where, func(t *testing.T) { b.attacked(t, where) })
	}
}

func (b *bed) attacked(t *testing.T, where string) {
	h := b.serve(b.at[where])
	defer h.end()
	now := make(chan struct{})
	close(now)
	before := b.look(where, now)
	incarnation := before.last.Lookup(0).At(0).Incarnation
	cc := b.dial(where, other)
	sub := slicerv1.NewSubscriberServiceClient(cc)
	send := func(h *slicerv1.Hello) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		s, err := sub.Watch(ctx)
		if err != nil {
			return err
		}
		_ = s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: h}})
		return begun(func() error { _, err := s.Recv(); return err })
	}
	hellos := func(n int, hello func(i int) *slicerv1.Hello) func() error {
		return func() (last error) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			slots := make(chan struct{}, 100)
			for i := range n {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					err := send(hello(i))
					mu.Lock()
					defer mu.Unlock()
					if last == nil || status.Code(err) != codes.PermissionDenied {
						last = err
					}
				})
			}
			wg.Wait()
			return last
		}
	}
	// silent makes connections that say nothing, 300 in a second, and leaves them open.
	silent := func() error {
		tick := time.NewTicker(time.Second / 300)
		defer tick.Stop()
		for range 300 {
			c, err := net.Dial("tcp", b.at[where])
			if err != nil {
				return err
			}
			defer c.Close()
			<-tick.C
		}
		return nil
	}
	// streams says nothing on many streams of several connections, while others join.
	streams := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 4 {
			cc, err := grpc.NewClient("passthrough:///"+b.at[where], b.credentials(other)...)
			if err != nil {
				return err
			}
			defer cc.Close()
			for range 900 {
				if _, err := slicerv1.NewSubscriberServiceClient(cc).Watch(ctx); err != nil {
					return err
				}
			}
		}
		for range 5 {
			if _, _, err := b.join(b.at[where]); err != nil {
				return err
			}
		}
		return nil
	}
	const running, dead = slicerv1.TaskState_TASK_STATE_RUNNING, slicerv1.TaskState_TASK_STATE_DEAD
	for _, x := range []struct {
		name string
		try  func() error
		want codes.Code
	}{
		{"a copied incarnation that is dead", hellos(3, func(i int) *slicerv1.Hello { return helloOf(fmt.Sprint("t", i+1), incarnation, 1, dead) }), codes.PermissionDenied},
		{"a name that another has", hellos(30, func(i int) *slicerv1.Hello { return helloOf("t1", uint64(i+100), 1, running) }), codes.PermissionDenied},
		{"a weight of 1e6", hellos(1, func(int) *slicerv1.Hello { return helloOf("heavy", 1, 1e6, running) }), codes.PermissionDenied},
		{"10000 tasks", hellos(10_000, func(i int) *slicerv1.Hello { return helloOf(fmt.Sprint("x", i), 1, 1, running) }), codes.PermissionDenied},
		{"a clerk of tomorrow", hellos(10, func(i int) *slicerv1.Hello {
			return &slicerv1.Hello{Job: cacheJob, Role: slicerv1.Role_ROLE_CLERK, ClientId: fmt.Sprint("c", i), StoreId: before.last.StoreID(), Checksum: 1, Generation: time.Now().Add(24 * time.Hour).UnixMilli()}
		}), codes.PermissionDenied},
		{"300 silent connections", silent, codes.OK},
		{"3600 silent streams", streams, codes.OK},
		{"a false Distributor", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			return attach(slicerv1.NewRelayServiceClient(cc).Attach(ctx))
		}, codes.PermissionDenied},
		{"an order in another's name", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := slicerv1.NewAdminServiceClient(cc).GiveOrder(ctx, &slicerv1.GiveOrderRequest{Job: cacheJob, Who: "ceo@example.com", Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{}}})
			return err
		}, codes.PermissionDenied},
	} {
		over := make(chan struct{})
		result := make(chan seen, 1)
		go func() { result <- b.look(where, over) }()
		err := x.try()
		close(over)
		during := <-result
		if status.Code(err) != x.want {
			t.Errorf("%s: %v, want %s", x.name, err, x.want)
		}
		after := b.look(where, now)
		for _, s := range []seen{during, after} {
			if s.last == nil {
				t.Fatalf("%s: no assignment", x.name)
			}
			if n := moved(before.last, s.last); n > 0 || s.last.NumTasks() != honestTasks {
				t.Errorf("%s: %d of 1000 keys have another owner, of %d tasks", x.name, n, s.last.NumTasks())
			}
		}
		h.unharmed(x.name)
		t.Logf("%-35s slowest join of %2d during it %4d ms, after it %4d ms", x.name, during.joins, during.slowest.Milliseconds(), after.slowest.Milliseconds())
	}
}
