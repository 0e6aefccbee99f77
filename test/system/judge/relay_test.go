package judge

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// side is what a process of the application can be cut off from.
type side int

const (
	toEtcd  side = iota
	toPlane      // Distributors, and the store of the registers
)

// network is how processes reach one another.
type network interface {
	// listen gives a host addresses to listen at, reached from where s leads.
	listen(host string, s side, n int) []string
	// command is how argv is run at a host.
	command(host string, argv ...string) []string
	// via is how a host reaches addresses, in a way that can be cut.
	via(host string, s side, addrs []string) []string
	// cut stops all that travels between the host and that side, or lets it go on.
	cut(host string, s side, off bool)
}

// loopback is the network that needs nothing but Go: hosts reach what they can be cut off
// from through relays. Each host has a loopback address of its own, so that no port is
// taken by another's outgoing connection while its process is dead.
type loopback struct {
	t     *testing.T
	base  int
	hosts map[string]string
	gates map[gateKey]*gate // nil without relays
}

type gateKey struct {
	host string
	side side
}

func newLoopback(t *testing.T) *loopback {
	return &loopback{t, rand.IntN(200 * 250), map[string]string{}, map[gateKey]*gate{}}
}

func (n *loopback) listen(host string, _ side, count int) []string {
	if n.hosts[host] == "" {
		n.hosts[host] = fmt.Sprintf("127.%d.%d.%d", 10+n.base/250, n.base%250, 1+len(n.hosts))
	}
	addrs := make([]string, count)
	for i := range addrs {
		l, err := net.Listen("tcp", n.hosts[host]+":0")
		if err != nil {
			n.t.Fatal(err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return addrs
}

func (n *loopback) command(_ string, argv ...string) []string { return argv }

func (n *loopback) via(host string, s side, addrs []string) []string {
	if n.gates == nil {
		return addrs
	}
	g := n.gates[gateKey{host, s}]
	if g == nil {
		g = newGate()
		n.gates[gateKey{host, s}] = g
	}
	var out []string
	for _, a := range addrs {
		out = append(out, startRelay(n.t, a, g))
	}
	return out
}

func (n *loopback) cut(host string, s side, off bool) {
	if g := n.gates[gateKey{host, s}]; g != nil {
		g.set(off)
	}
}

// gate holds up what passes through relays. What is held up is delivered when it
// opens again, late.
type gate struct {
	mu   sync.Mutex
	shut bool
	open chan struct{} // closed while it is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shut == g.shut {
		return
	}
	g.shut = shut
	if shut {
		g.open = make(chan struct{})
	} else {
		close(g.open)
	}
}

func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
}

// startRelay passes connections on to an address until the test ends.
func startRelay(t *testing.T, to string, g *gate) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { relay(ctx, in, to, g) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func relay(ctx context.Context, in net.Conn, to string, g *gate) {
	defer in.Close()
	g.pass(ctx)
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _ = in.Close(); _ = out.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { pump(ctx, out, in, g) })
	wg.Go(func() { pump(ctx, in, out, g) })
	wg.Wait()
}

// pump copies from one connection to the other; when one end is gone, both are,
// once the gate lets that be known.
func pump(ctx context.Context, to, from net.Conn, g *gate) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		g.pass(ctx)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			if err != io.EOF || ctx.Err() == nil {
				_ = to.Close()
				_ = from.Close()
			}
			return
		}
	}
}
