package subsetting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
)

// TestSubscribersAreSpreadAgain restarts two Distributors one after the other: all subscribers
// are with the one that was up last. They are spread again, slowly, and that has no other
// effect: no slicelet is moved away, no key moves, no task is taken for dead, no assignment is
// sent whole, each client finds the owner of each key at any moment. Then it is over.
func TestSubscribersAreSpreadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		defer p.close()
		p.putJob()
		const servers, clients = 20, 30
		tasks := make(map[string]*slicelet.Slicelet)
		for i := range servers {
			name := fmt.Sprint("server-", i)
			s := p.server(name)
			tasks[name] = s
			defer s.Close()
		}
		c := &crowd{plane: p, clerks: make(map[int]*clerk.Clerk), held: make(map[int]int)}
		defer func() {
			for n := range c.clerks {
				c.leave(n)
			}
		}()
		c.come(clients)
		time.Sleep(time.Minute)
		for _, address := range []string{distributor1, distributor2} {
			p.stop(address)
			time.Sleep(20 * time.Second)
			p.start(address)
			time.Sleep(5 * time.Second)
		}
		one, two := p.subscribers(distributor1), p.subscribers(distributor2)
		if one != servers+clients || two != 0 {
			t.Fatalf("after the restart %d and %d are connected", one, two)
		}
		before := c.clerks[0].Assignment()
		wholes := func() (n int) {
			for _, kind := range []string{"whole", "compressed"} {
				n += p.count(distributor1, "slicer_distributor_updates_total", kind) + p.count(distributor2, "slicer_distributor_updates_total", kind)
			}
			return n
		}
		whole := wholes()
		for range 1200 { // two minutes
			time.Sleep(100 * time.Millisecond)
			for n, ck := range c.clerks {
				key := fmt.Sprint("key-", n)
				owners := ck.Lookup(key)
				if owners.Len() != 1 {
					t.Fatalf("client %d finds %d owners", n, owners.Len())
				}
				if owner := ck.Assignment().Task(owners.Position(0)).Name; !tasks[owner].IsAffinitized(key) {
					t.Fatalf("client %d finds %s, which does not own the key", n, owner)
				}
			}
		}
		one, two = p.subscribers(distributor1), p.subscribers(distributor2)
		moved := p.count(distributor1, "slicer_distributor_sent_away_total", "")
		t.Logf("%d and %d are connected, %d were let go", one, two, moved)
		if one+two != servers+clients || one > 29 || two > 25 || moved != two {
			t.Errorf("%d and %d are connected, %d were let go", one, two, moved)
		}
		if now := c.clerks[0].Assignment(); now.Generation() != before.Generation() {
			t.Errorf("the assignment was changed: generation %d, before %d", now.Generation(), before.Generation())
		}
		if n := wholes(); n != whole {
			t.Errorf("%d were sent the whole assignment", n-whole)
		}
		// A client that is moved away by the one goes to the other, and stays there.
		if n := p.count(distributor1, "slicer_distributor_subscribers", "slicelet"); n != servers {
			t.Errorf("%d of %d slicelets are where they were", n, servers)
		}
		time.Sleep(10 * time.Minute)
		if n := p.count(distributor1, "slicer_distributor_sent_away_total", "") + p.count(distributor2, "slicer_distributor_sent_away_total", ""); n != moved {
			t.Errorf("%d more were let go", n-moved)
		}
	})
}
