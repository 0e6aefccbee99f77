package distributor

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// fromListener makes connections come from addresses that the test names.
type fromListener struct {
	net.Listener
	from chan net.Addr
}

type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

func (l fromListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromConn{c, <-l.from}, nil
}

// bounded is a Distributor with clients at several addresses.
type bounded struct {
	t *testing.T
	n *network
	f *fakeAssigner
	d *Distributor
	l fromListener
}

func newBounded(t *testing.T) *bounded {
	b := &bounded{t: t, n: newNetwork()}
	b.f = b.n.assigner(t, "a1", assigner1)
	b.f.mu.Lock()
	b.f.pref = &slicerv1.Preference{Revision: 1, Jobs: []*slicerv1.JobPreference{{Job: testJob, AssignerId: "a1"}}}
	b.f.mu.Unlock()
	b.f.know(testJob)
	b.f.set(firstOf(t, testJob, testStore, baseGen, 10))
	var err error
	if b.d, err = newDistributor(Config{ID: "d1", Assigners: []string{assigner1}, DialOptions: b.n.dialOptions()}, b.n.lookup); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.d.Close() })
	b.l = fromListener{b.n.listen(server), make(chan net.Addr, 1)}
	b.n.serveOn(t, server, b.d.Admit(b.l), func(s *grpc.Server) { b.d.Register(s) }, ServerOptions()...)
	return b
}

// at is a connection that comes from an address.
func (b *bounded) at(address string) *grpc.ClientConn {
	b.l.from <- &net.TCPAddr{IP: net.ParseIP(address), Port: 7}
	cc := b.n.connect(b.t, server)
	cc.Connect()
	synctest.Wait()
	return cc
}

func fetchErr(cc *grpc.ClientConn, job string) error {
	s, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(context.Background(), &slicerv1.FetchRequest{Job: job})
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

// Names that no store knows are asked for ten times a second from one address, and in
// all a few at once. Names that turn out to be jobs do not count, and neither do other
// addresses.
func TestUnknownNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBounded(t)
		bad, good := b.at("10.0.0.1"), b.at("10.0.0.2")
		next := 0
		flood := func(n int) (asked int) {
			for range n {
				next++
				switch err := fetchErr(bad, fmt.Sprint("unknown-", next)); status.Code(err) {
				case codes.NotFound:
					asked++
				case codes.ResourceExhausted:
					if !strings.Contains(err.Error(), "10 a second are allowed, and 100 at once") || !strings.Contains(err.Error(), "10.0.0.1") {
						t.Fatalf("refused with %v", err)
					}
				default:
					t.Fatal(err)
				}
			}
			return asked
		}
		if n := flood(500); n != 100 {
			t.Errorf("%d of 500 names are asked for at once, not 100", n)
		}
		b.d.mu.Lock()
		if n := len(b.d.jobs); n != 100 {
			t.Errorf("%d jobs are kept", n)
		}
		b.d.mu.Unlock()
		asked := 0
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			asked += flood(5)
		}
		if asked != 50 {
			t.Errorf("%d names are asked for in 5 s, not 50", asked)
		}
		for i := range 200 {
			job := fmt.Sprint("known-", i)
			b.f.know(job)
			b.f.set(firstOf(t, job, testStore, baseGen, 10))
		}
		for i := range 200 {
			if err := fetchErr(good, fmt.Sprint("known-", i)); err != nil {
				t.Fatalf("job number %d of another address: %v", i, err)
			}
		}
		if err := fetchErr(good, "unknown"); status.Code(err) != codes.NotFound {
			t.Errorf("an unknown one of another address: %v", err)
		}
		s := subscribe(t, bad, clerkHello("c"), nil)
		if s.holds() == nil {
			t.Errorf("a known job, from the same address: %v", s.err)
		}
		// A connection on which it goes on and on is closed.
		b.l.from <- &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 8}
		for i := 0; i < 1000 && s.ended() == codes.OK; i++ {
			fetchErr(bad, fmt.Sprint("unknown-", next))
			next++
		}
		if s.ended() == codes.OK {
			t.Error("after 1000 refusals the connection is open still")
		}
	})
}

// A name that joins again and again is refused, which costs the assigners nothing. It
// may join from elsewhere, and other names from there; a reconnection is no join.
func TestJoinsOfOneName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBounded(t)
		bad, good := b.at("10.0.0.1"), b.at("10.0.0.2")
		joined := 0
		inc := uint64(0)
		for range 500 { // 5 s
			time.Sleep(10 * time.Millisecond)
			inc++
			s := subscribe(t, bad, sliceletHello("t1", inc), nil)
			synctest.Wait()
			switch c := s.ended(); {
			case c == codes.OK:
				joined++
				s.report(&slicerv1.Report{Sequence: 2, State: slicerv1.TaskState_TASK_STATE_DEAD})
			case c != codes.ResourceExhausted || !strings.Contains(s.err.Error(), "once in 1s is allowed, and 10 times at once"):
				t.Fatal(s.err)
			}
			s.close()
			synctest.Wait()
		}
		if joined > 15 {
			t.Errorf("it has joined %d times in 5 s", joined)
		}
		for i := range 100 {
			if s := subscribe(t, bad, sliceletHello(fmt.Sprint("other-", i), 1), nil); s.ended() != codes.OK {
				t.Fatalf("another name from the same address: %v", s.err)
			}
		}
		t1 := subscribe(t, good, sliceletHello("t1", 7_000), nil)
		if t1.ended() != codes.OK {
			t.Errorf("the name from another address: %v", t1.err)
		}
		for range 50 {
			again := subscribe(t, good, sliceletHello("t1", 7_000), nil)
			if synctest.Wait(); again.ended() != codes.OK {
				t.Fatalf("a reconnection: %v", again.err)
			}
		}
	})
}
