package distributor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// tooMany is a Distributor with 40 subscribers of a job who hold its assignment, where
// the mean is 10.
func tooMany(t *testing.T, hello func(id string) *slicerv1.Hello, as ...func(*fakeSub)) (w *world, f *fakeAssigner, subs []*fakeSub) {
	n := newNetwork()
	f = n.assigner(t, "a1", assigner1)
	a := firstOf(t, testJob, testStore, baseGen, 10)
	f.set(a)
	f.prefer(1, "a1")
	w = newWorld(t, n, assigner1)
	time.Sleep(time.Second)
	for i := range 40 {
		subs = append(subs, subscribe(t, w.cc, hello(fmt.Sprint("s", i)), a, as...))
	}
	time.Sleep(time.Second)
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		f.reply(s, &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Status{Status: &slicerv1.JobStatus{Job: testJob, Distributors: 2, MeanSubscribers: 10}}})
	}
	return w, f, subs
}

func gone(subs []*fakeSub) (n int) {
	for _, s := range subs {
		if s.ended() != codes.OK {
			n++
		}
	}
	return n
}

// A subscriber that never acknowledges keeps no other from being moved away, nor is it
// moved away itself.
func TestStuckSubscriberDoesNotKeepOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, f, subs := tooMany(t, clerkHello)
		subs[0].mu.Lock()
		subs[0].silent = true
		next := after(t, subs[0].a, 3)
		subs[0].mu.Unlock()
		f.set(next)
		time.Sleep(2 * time.Minute)
		if n := gone(subs); n != 28 || subs[0].ended() != codes.OK {
			t.Errorf("%d were let go, the one that is stuck: %s", n, subs[0].ended())
		}
	})
}

// Where all are slicelets none can go. That is looked at seldom; when clerks come they
// are moved away.
func TestSliceletsAreNotLetGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, subs := tooMany(t, func(id string) *slicerv1.Hello { return sliceletHello(id, 1) })
		time.Sleep(10 * time.Minute)
		if n := gone(subs); n != 0 {
			t.Errorf("%d slicelets were let go", n)
		}
		var clerks []*fakeSub
		for i := range 5 {
			clerks = append(clerks, w.clerk(fmt.Sprint("c", i)))
		}
		time.Sleep(2 * fanout.RestMin)
		if n, m := gone(clerks), gone(subs); n != 5 || m != 0 {
			t.Errorf("%d of 5 clerks and %d slicelets were let go", n, m)
		}
	})
}

// An auto-sharding client that leaves, or refuses what it is sent, is not waited for any more.
func TestAutoshardingClientIsNotWaitedFor(t *testing.T) {
	for name, ends := range map[string]func(*autoshardingClient){
		"leaves":  func(c *autoshardingClient) { c.Leave(time.Now()) },
		"refuses": func(c *autoshardingClient) { c.Refuses(time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f, a, w := served(t, 10)
				same(t, w.clerk("c1").holds(), a)
				feed, err := source{w.d}.Join(t.Context(), testJob, "g1", a.Generation())
				if err != nil {
					t.Fatal(err)
				}
				c := feed.(*autoshardingClient)
				defer func() { c.Leave(time.Now()) }()
				f.set(after(t, a, 3))
				waits := func() bool {
					synctest.Wait()
					return w.d.handshakes.Paused()
				}
				if !waits() {
					t.Error("the client is not waited for")
				}
				if ends(c); waits() {
					t.Error("it is waited for still")
				}
			})
		})
	}
}
