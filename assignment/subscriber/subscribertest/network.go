// Package subscribertest is the control plane's end of the watch, for the tests
// of subscribers: real gRPC servers that a test tells what to say. They listen on
// an in-memory network, so that whole tests run on virtual time
// (testing/synctest).
//
//	net := subscribertest.NewNetwork()
//	server := net.Start("10.0.0.1:1")
//	defer server.Stop()
//	server.Put(subscribertest.Build(t, 5, nil, placement))
package subscribertest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Network connects clients with servers by address. Addresses are IP:port, which
// gRPC does not look up.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dials     map[string]int
	blackhole map[string]bool
	aliases   map[string][]string
}

// NewNetwork returns one without servers.
func NewNetwork() *Network {
	return &Network{
		listeners: make(map[string]*bufconn.Listener),
		dials:     make(map[string]int),
		blackhole: make(map[string]bool),
		aliases:   make(map[string][]string),
	}
}

// DialOptions make a client use the network.
func (n *Network) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(n.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

func (n *Network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dials[addr]++
	if to := n.aliases[addr]; len(to) > 0 {
		addr = to[(n.dials[addr]-1)%len(to)]
	}
	l, lost := n.listeners[addr], n.blackhole[addr]
	n.mu.Unlock()
	switch {
	case lost:
		<-ctx.Done()
		return nil, ctx.Err()
	case l == nil:
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return l.DialContext(ctx)
}

// Dials counts the connections tried to an address.
func (n *Network) Dials(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[addr]
}

// Alias makes an address that of several servers, to which it leads by turns.
func (n *Network) Alias(addr string, to ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aliases[addr] = to
}

// Blackhole makes connections to an address hang instead of being refused.
func (n *Network) Blackhole(addr string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blackhole[addr] = on
}

func (n *Network) listen(addr string) *bufconn.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := bufconn.Listen(1 << 16)
	n.listeners[addr] = l
	return l
}

func (n *Network) unlisten(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.listeners, addr)
}
