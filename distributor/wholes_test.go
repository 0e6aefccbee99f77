package distributor

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// Subscribers that do not acknowledge hold up the others for a while and no longer.
func TestStuckSubscribersHoldUpOthersForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		a := firstOf(t, testJob, testStore, baseGen, 100)
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions()}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		d.wholes = limiter.NewWholes[*job](2, 0)
		n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		cc := n.connect(t, server)
		f.know(testJob)
		var stuck, others []*fakeSub
		for i := range 2 {
			s := subscribe(t, cc, clerkHello(fmt.Sprint("stuck-", i)), nil)
			s.mu.Lock()
			s.silent = true
			s.mu.Unlock()
			stuck = append(stuck, s)
		}
		f.set(a)
		for _, s := range stuck {
			same(t, s.holds(), a)
		}
		for i := range 20 {
			others = append(others, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
		}
		for _, s := range others {
			if s.holds() != nil {
				t.Error("one is sent the whole before its turn")
			}
		}
		time.Sleep(limiter.WholeFor)
		for _, s := range others {
			same(t, s.holds(), a)
		}
		if waiting, _ := d.wholes.Look(); waiting != 0 {
			t.Errorf("%d wait", waiting)
		}
	})
}
