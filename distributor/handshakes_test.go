package distributor

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// watched is a listener that looks when it has handed out a connection.
type watched struct {
	net.Listener
	look func()
}

func (w watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err == nil {
		w.look()
	}
	return c, err
}

// Hundreds that come at once are all let in and served, whether there is something to be
// sent to them or not, and never are more of them being set up than are allowed; while
// some of those that are connected have not taken a change, that is fewer.
func TestManyHandshakes(t *testing.T) {
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
			d.handshakes = limiter.NewHandshakes(limiter.HandshakesConfig{Most: 5})
			var mu sync.Mutex
			allowed := 5
			front := watched{d.Admit(n.listen(server)), func() {
				mu.Lock()
				defer mu.Unlock()
				if now := d.handshakes.UnderWay(); now > allowed {
					t.Errorf("%d are being set up, at most %d are allowed", now, allowed)
				}
			}}
			n.serveOn(t, server, front, func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
			// come has so many subscribe, each on a connection of its own.
			come := func(many int, as ...func(*fakeSub)) (subs []*fakeSub) {
				var all sync.WaitGroup
				came := make(chan *fakeSub, many)
				for range many {
					all.Go(func() { came <- subscribe(t, n.connect(t, server), clerkHello(""), nil, as...) })
				}
				all.Wait()
				synctest.Wait()
				for range many {
					subs = append(subs, <-came)
				}
				return subs
			}
			subs := come(200)
			stuck := come(3, func(s *fakeSub) { s.silent = true })
			if assigned {
				a = after(t, a, 10)
			}
			f.set(a)
			synctest.Wait()
			mu.Lock()
			allowed = limiter.DefaultFew
			mu.Unlock()
			subs = append(subs, come(100)...)
			for _, s := range subs {
				same(t, s.holds(), a)
			}
			for _, s := range append(subs, stuck...) {
				if s.ended() != codes.OK {
					t.Errorf("one has ended: %v", s.err)
				}
			}
			if n := d.handshakes.UnderWay(); n > 0 {
				t.Errorf("%d are being set up in the end", n)
			}
		})
	}
}
