package distributor

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/slicer-project/slicer/assignment/limiter"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A connection on which there are very many streams is told that no more are answered
// there, and what has ended counts no more. Other connections are as before, and so are
// calls of other Distributors.
func TestStreamsOfAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		f.know(testJob)
		f.set(firstOf(t, testJob, testStore, baseGen, 10))
		d, err := newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: n.dialOptions()}, n.lookup)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		n.serveOn(t, server, d.Admit(n.listen(server)), func(s *grpc.Server) { d.Register(s) }, ServerOptions()...)
		cc := n.connect(t, server)
		var subs []*fakeSub
		watch := func(many int) {
			for i := range many {
				subs = append(subs, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
			}
			synctest.Wait()
		}
		watch(1100)
		refused := 0
		for _, s := range subs {
			if c := s.ended(); c == codes.ResourceExhausted && strings.Contains(s.err.Error(), "1000 calls and streams on one connection") {
				refused++
			} else if c != codes.OK {
				t.Fatalf("one has ended: %v", s.err)
			}
		}
		if refused != 100 {
			t.Errorf("%d of 1100 are refused, not 100", refused)
		}
		if _, err := slicerv1.NewRelayServiceClient(cc).Describe(t.Context(), &slicerv1.DescribeRequest{}); err != nil {
			t.Errorf("another Distributor's call: %v", err)
		}
		if s := subscribe(t, n.connect(t, server), clerkHello("other"), nil); s.holds() == nil {
			t.Errorf("on another connection: %v", s.err)
		}
		for _, s := range subs {
			s.close()
		}
		synctest.Wait() // until the server has seen that they have ended
		subs = nil
		watch(1000)
		for _, s := range subs {
			if s.ended() != codes.OK {
				t.Fatalf("when the others have ended: %v", s.err)
			}
		}
		// One that goes on is closed, with all that there is on it.
		watch(900)
		for _, s := range subs {
			if s.ended() == codes.OK {
				t.Fatal("after 1000 refusals there are streams still")
			}
		}
	})
}

// The streams of one client are bounded over all of its connections, too.
func TestStreamsOfAClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const most = 1500
		b := newBounded(t)
		b.d.handshakes = limiter.NewHandshakes(limiter.HandshakesConfig{MaxClientCalls: func(context.Context) int { return most }})
		const address = "127.0.0.1:7009"
		l := fromListener{b.n.listen(address), make(chan net.Addr, 1)}
		b.n.serveOn(t, address, b.d.Admit(l), func(s *grpc.Server) { b.d.Register(s) }, ServerOptions()...)
		at := func(from string) *grpc.ClientConn {
			l.from <- &net.TCPAddr{IP: net.ParseIP(from), Port: 7}
			cc := b.n.connect(t, address)
			cc.Connect()
			synctest.Wait()
			return cc
		}
		var subs []*fakeSub
		for range 2 {
			cc := at("10.0.0.1")
			for i := range 800 {
				subs = append(subs, subscribe(t, cc, clerkHello(fmt.Sprint("c", i)), nil))
			}
			synctest.Wait()
		}
		refused := 0
		for _, s := range subs {
			if c := s.ended(); c == codes.ResourceExhausted && strings.Contains(s.err.Error(), "10.0.0.1 has 1500 calls and streams here") {
				refused++
			} else if c != codes.OK {
				t.Fatal(s.err)
			}
		}
		if refused != len(subs)-most {
			t.Errorf("%d of %d are refused, %d are allowed", refused, len(subs), most)
		}
		if s := subscribe(t, at("10.0.0.2"), clerkHello("other"), nil); s.holds() == nil {
			t.Errorf("of another client: %v", s.err)
		}
	})
}
