package distributor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// No more are inside than the door lets in, slicelets do not wait, and whoever has
// waited for long is told when to come back.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		d.limit = 2
		stop := make(chan struct{})
		type one struct {
			served func()
			err    error
			after  time.Duration
		}
		began := time.Now()
		enter := func(role slicerv1.Role, gone <-chan struct{}) <-chan one {
			c := make(chan one, 1)
			go func() {
				served, err := d.enter(role, gone, stop)
				c <- one{served, err, time.Since(began)}
			}()
			synctest.Wait()
			return c
		}
		const clerk, slicelet = slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET
		a, b := <-enter(clerk, nil), <-enter(clerk, nil)
		s := <-enter(slicelet, nil)
		gone := make(chan struct{})
		first, leaves, second := enter(clerk, nil), enter(clerk, gone), enter(clerk, nil)
		if len(first)+len(leaves)+len(second) != 0 || d.waiting() != 3 {
			t.Fatalf("%d wait", d.waiting())
		}
		close(gone)
		if x := <-leaves; x.err == nil || d.waiting() != 2 {
			t.Fatalf("one who has gone: %v, %d wait", x.err, d.waiting())
		}
		a.served()
		a.served() // counts once
		synctest.Wait()
		if len(first) != 0 {
			t.Fatal("three are inside, two of them clerks, and one more is let in")
		}
		s.served()
		x := <-first
		if x.err != nil || len(second) != 0 {
			t.Fatalf("the first: %v", x.err)
		}
		y := <-second
		if after, told := isComeBack(y.err); !told || after < comeBackMin || after > comeBackMax || y.after != atDoorFor {
			t.Fatalf("sent away after %s with %v", y.after, y.err)
		}
		b.served()
		x.served()
		if z := <-enter(clerk, nil); z.err != nil {
			t.Fatal(z.err)
		}
		late := enter(clerk, nil)
		if len(late) != 1 {
			t.Fatal("the second of two is not let in")
		}
		waits := enter(clerk, nil)
		close(stop)
		if x := <-waits; x.err != errClosing {
			t.Fatalf("when the Distributor closes: %v", x.err)
		}
	})
}

// Hundreds that come at once are all let in, whether there is something to be sent
// to them or not.
func TestCrowdAtTheDoor(t *testing.T) {
	for _, assigned := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			n := newNetwork()
			f := n.assigner(t, "a1", assigner1)
			a := firstOf(t, testJob, testStore, baseGen, 100)
			f.know(testJob)
			if assigned {
				f.set(a)
			}
			d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions()}, n.lookup)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			d.door.limit = 3
			n.serve(t, server, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
			cc := n.connect(t, server)
			var subs []*fakeSub
			for i := range 100 {
				subs = append(subs, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
			}
			synctest.Wait()
			if !assigned {
				f.set(a)
			}
			for _, s := range subs {
				same(t, s.holds(), a)
				if s.ended() != codes.OK {
					t.Errorf("one has ended: %v", s.err)
				}
			}
			if d.door.waiting() != 0 {
				t.Errorf("%d wait", d.door.waiting())
			}
		})
	}
}
