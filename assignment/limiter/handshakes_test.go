package limiter_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener whose connections the test makes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

type named struct {
	net.Conn
	from string
}

func (n named) RemoteAddr() net.Addr { return n }
func (n named) Network() string      { return "tcp" }
func (n named) String() string       { return n.from }

func (p *pipes) Addr() net.Addr { return named{} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// connect makes a connection from an address and returns the client's end.
func (p *pipes) connect(from string) net.Conn {
	client, server := net.Pipe()
	p.conns <- named{server, from}
	return client
}

// speak makes one that sends something.
func (p *pipes) speak(from string) net.Conn {
	c := p.connect(from)
	go c.Write([]byte("PRI"))
	return c
}

// bench is a listener and what it has handed out.
type bench struct {
	t  *testing.T
	h  *limiter.Handshakes
	in *pipes

	mu      sync.Mutex
	got     []net.Conn
	dropped map[string]int
}

func newBench(t *testing.T, most, few int) *bench {
	return newBenchOf(t, limiter.HandshakesConfig{Most: most, Few: few})
}

func newBenchOf(t *testing.T, cfg limiter.HandshakesConfig) *bench {
	b := &bench{t: t, in: newPipes(), dropped: map[string]int{}}
	cfg.Dropped = func(why string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dropped[why]++
	}
	b.h = limiter.NewHandshakes(cfg)
	lis := b.h.Listener(b.in, 0)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				ended <- err
				return
			}
			b.mu.Lock()
			b.got = append(b.got, c)
			b.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		if err := lis.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returned %v in the end", err)
		}
		for _, c := range b.got {
			c.Close()
		}
		if n := b.h.UnderWay(); n != 0 {
			t.Errorf("%d handshakes are under way in the end", n)
		}
		time.Sleep(2 * limiter.HandshakeFor) // no timer is left
	})
	return b
}

// accepted checks how many connections were handed out, and returns them.
func (b *bench) accepted(want int, when string) []net.Conn {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.got) != want {
		b.t.Errorf("%s %d are handed out, not %d", when, len(b.got), want)
	}
	return b.got
}

func handshake(c net.Conn) *limiter.Handshake { return c.RemoteAddr().(*limiter.Handshake) }

// No more connections are set up at once than is allowed, and hardly any while a change
// is on its way; one that takes long, leaves or does not read holds up none for good.
func TestHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3, 1)
		for range 20 {
			b.in.speak("10.0.0.1:1")
		}
		b.accepted(3, "at first")[0].Close()
		in := b.accepted(4, "when one has left")
		handshake(in[1]).Release()
		handshake(in[1]).Release()
		in[1].Close()
		in = b.accepted(5, "when one is served, which counts once,")
		b.h.Pause(time.Now(), "a")
		b.h.Pause(time.Now(), "b")
		handshake(in[2]).Release()
		handshake(in[3]).Release()
		b.accepted(5, "when two of three are served during a change")
		handshake(in[4]).Release()
		b.accepted(6, "when the third is, too,")
		b.h.Resume(time.Now(), "a")
		b.accepted(6, "when one of two changes is over")
		b.h.Resume(time.Now(), "b")
		in = b.accepted(8, "when both are")
		b.h.Pause(time.Now(), "a")
		for _, c := range in {
			c.Close()
		}
		b.accepted(9, "during the next change")
		time.Sleep(limiter.PauseFor)
		b.accepted(12, "when a change has taken for too long, as has what came in during it,")
		time.Sleep(limiter.HandshakeFor)
		b.accepted(15, "when those have taken for too long")
	})
}

// What a connection has sent is read as it was sent.
func TestFirstByteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, 0)
		b.in.speak("10.0.0.1:1")
		c := b.accepted(1, "one that speaks")[0]
		var got []byte
		for len(got) < 3 {
			buf := make([]byte, 8)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, buf[:n]...)
		}
		if string(got) != "PRI" {
			t.Errorf("%q is read", got)
		}
	})
}

// Connections that send nothing hold up no other, wherever they come from and whether a
// change is on its way or not: at most 512 of one address are kept, and for 10 s.
func TestSilentConnections(t *testing.T) {
	for _, change := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 0, 0)
			served := 0
			for range 20 { // seconds
				for i := range 300 {
					b.in.connect("10.0.0.1:1")
					if i%100 == 0 {
						if change {
							b.h.Pause(time.Now(), "change")
						}
						for _, from := range []string{"10.0.0.2:1", "10.0.0.1:2"} {
							b.in.speak(from)
							served++
							in := b.accepted(served, fmt.Sprintf("after %d silent ones, from %s,", i, from))
							handshake(in[served-1]).Release()
						}
					}
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
			b.mu.Lock()
			if n := b.dropped[limiter.DroppedSilent]; n != 6000-512 {
				b.t.Errorf("%d were dropped for their silence, not %d", n, 6000-512)
			}
			b.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			b.mu.Lock()
			if n := b.dropped[limiter.DroppedSilent]; n != 6000 {
				b.t.Errorf("%d were dropped for their silence in the end, not 6000", n)
			}
			b.mu.Unlock()
		})
	}
}

// Connections that begin their handshake and do not finish it hold up those of their own
// address, and no others.
func TestStuckHandshakes(t *testing.T) {
	for _, change := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 0, 0)
			served := 0
			for i := range 2000 {
				b.in.speak("10.0.0.1:1")
				if i%100 != 0 {
					continue
				}
				if change {
					b.h.Pause(time.Now(), "change")
				}
				b.in.speak(fmt.Sprintf("10.0.1.%d:1", i/100))
				synctest.Wait()
				b.mu.Lock()
				found := false
				for _, c := range b.got {
					if limiter.KeyOf(c.RemoteAddr()) == fmt.Sprintf("10.0.1.%d", i/100) {
						found = true
						handshake(c).Release()
					}
				}
				b.mu.Unlock()
				if served++; !found {
					t.Errorf("the honest one number %d waits", served)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

func TestKeyOf(t *testing.T) {
	for s, want := range map[string]string{
		"10.0.0.1:77": "10.0.0.1", "[::ffff:10.0.0.1]:77": "10.0.0.1", "[2001:db8:1:2:3:4:5:6]:77": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:7": "fe80::/64", "bufconn": "bufconn", "[::1]:7": "::1", "@": "@", "": "",
	} {
		if got := limiter.KeyOf(named{from: s}); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
	if got := limiter.KeyOf(nil); got != "" {
		t.Errorf("none: %q", got)
	}
}

// With UntilSetUp one is over when its server takes the deadline off the connection, which keeps
// its address; while its server is busy hardly any are begun.
func TestUntilSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		b := newBenchOf(t, limiter.HandshakesConfig{Most: 3, Few: 1, UntilSetUp: true, Busy: busy.Load})
		for range 20 {
			b.in.speak("10.0.0.1:1")
		}
		in := b.accepted(3, "at first")
		if _, ok := in[0].RemoteAddr().(named); !ok {
			t.Errorf("the address is %T", in[0].RemoteAddr())
		}
		setUp := func(c net.Conn) {
			t.Helper()
			if err := errors.Join(c.SetDeadline(time.Now().Add(time.Minute)), c.SetDeadline(time.Time{})); err != nil {
				t.Error(err)
			}
		}
		setUp(in[0])
		setUp(in[0])
		in = b.accepted(4, "when one is set up, which counts once,")
		busy.Store(true)
		setUp(in[1])
		setUp(in[2])
		b.accepted(4, "when two of three are set up and the server is busy")
		setUp(in[3])
		b.accepted(5, "when the third is, too,")
		busy.Store(false)
		time.Sleep(200 * time.Millisecond)
		in = b.accepted(7, "when it is not busy any more")
		busy.Store(true)
		for _, c := range in {
			setUp(c)
		}
		b.accepted(8, "when it is again")
		time.Sleep(limiter.HandshakeFor)
		b.accepted(9, "a second later")
	})
}
