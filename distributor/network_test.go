package distributor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// network joins what listens and what dials within one test, in memory, so that
// it runs on virtual time.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	hosts     map[string][]netip.Addr
}

func newNetwork() *network {
	return &network{listeners: make(map[string]*bufconn.Listener), hosts: make(map[string][]netip.Addr)}
}

func (n *network) listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := bufconn.Listen(64 << 10)
	n.listeners[address] = l
	return l
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused by " + address)
	}
	return l.DialContext(ctx)
}

// lookup is the network's name service.
func (n *network) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.hosts[host]; ok {
		return a, nil
	}
	return nil, errors.New("no such host")
}

func (n *network) setHost(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = nil
	for _, a := range addresses {
		n.hosts[host] = append(n.hosts[host], netip.MustParseAddr(a))
	}
}

func (n *network) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(n.dial),
	}
}

// serve runs a gRPC server until the test ends or the returned function is called.
func (n *network) serve(t testing.TB, address string, register func(*grpc.Server), opts ...grpc.ServerOption) (stop func()) {
	t.Helper()
	return n.serveOn(t, address, n.listen(address), register, opts...)
}

// serveOn is serve with another listener in front of the network's.
func (n *network) serveOn(t testing.TB, address string, front net.Listener, register func(*grpc.Server), opts ...grpc.ServerOption) (stop func()) {
	t.Helper()
	s := grpc.NewServer(opts...)
	register(s)
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(front)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop()
		<-done
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.listeners[address] == l {
			delete(n.listeners, address)
		}
	})
	t.Cleanup(stop)
	return stop
}

// connect is a client's connection.
func (n *network) connect(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, n.dialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}
