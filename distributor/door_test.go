package distributor

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// crowded is a listener with as many connections as anybody accepts.
type crowded struct {
	net.Listener
	closed chan struct{}
}

func (c crowded) Accept() (net.Conn, error) {
	select {
	case <-c.closed:
		return nil, net.ErrClosed
	default:
		here, _ := net.Pipe()
		return here, nil
	}
}

func (c crowded) Close() error { close(c.closed); return nil }

// No more connections are set up at once than the door lets in, and hardly any while
// those who are in wait for a change; who takes long, leaves or does not read holds up
// nobody for good.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Distributor{door: newDoor(prometheus.NewGauge(prometheus.GaugeOpts{}))}
		d.door.limit, d.door.few = 3, 1
		lis := d.Admit(crowded{closed: make(chan struct{})})
		var mu sync.Mutex
		var in []admitted
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := lis.Accept()
				if err != nil {
					ended <- err
					return
				}
				mu.Lock()
				in = append(in, c.(admitted))
				mu.Unlock()
			}
		}()
		accepted := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(in) != want {
				t.Errorf("%s %d are let in, not %d", when, len(in), want)
			}
		}
		accepted(3, "at first")
		in[0].Close()
		accepted(4, "when one has left")
		in[1].setUp.over()
		in[1].setUp.over()
		in[1].Close()
		accepted(5, "when one is served, which counts once,")
		a, b := new(job), new(job)
		d.door.changing(time.Now(), a)
		d.door.changing(time.Now(), b)
		in[2].setUp.over()
		in[3].setUp.over()
		accepted(5, "when two of three are served during a change")
		in[4].setUp.over()
		accepted(6, "when the third is, too,")
		d.door.changed(a)
		accepted(6, "when one of two jobs is done with it")
		d.door.changed(b)
		accepted(8, "when both are")
		d.door.changing(time.Now(), a)
		for _, c := range in {
			c.Close()
		}
		accepted(9, "during the next change")
		time.Sleep(changeFor)
		accepted(12, "when a change has taken for too long, as has who came in during it,")
		time.Sleep(setUpFor)
		accepted(15, "when those have taken for too long")
		if err := lis.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("in the end: %v", err)
		}
		for _, c := range in {
			c.Close()
		}
		if d.door.setUps != 0 {
			t.Errorf("%d are being set up in the end", d.door.setUps)
		}
	})
}

// watched is a listener that looks at the door when a connection has come.
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
// some of those who are in have not taken a change, that is fewer.
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
			d.door.limit = 5
			var mu sync.Mutex
			allowed := d.door.limit
			front := d.Admit(watched{n.listen(server), func() {
				d.door.mu.Lock()
				now := d.door.setUps
				d.door.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				if now > allowed {
					t.Errorf("%d are being set up, at most %d are allowed", now, allowed)
				}
			}})
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
			allowed = d.door.few
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
			if d.door.setUps > 1 { // one that it waits for
				t.Errorf("%d are being set up in the end", d.door.setUps)
			}
		})
	}
}
