package slicertest

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// network joins listeners and dialers by address, within the process.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
}

// buffer is how many bytes one side may have sent that the other has not received.
const buffer = 64 << 10

var errInUse = errors.New("address already in use")

// listener is a net.Listener at an address of the network.
type listener struct {
	*bufconn.Listener
	network *network
	address string
}

// address is a net.Addr.
type address string

func (address) Network() string  { return "slicertest" }
func (a address) String() string { return string(a) }

func (n *network) listen(at string) (*listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "slicertest", Addr: address(at), Err: errInUse}
	}
	l := &listener{bufconn.Listen(buffer), n, at}
	n.listeners[at] = l
	return l, nil
}

// Addr is net.Listener's.
func (l *listener) Addr() net.Addr { return address(l.address) }

// Close is net.Listener's.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.address] == l {
		delete(l.network.listeners, l.address)
	}
	l.network.mu.Unlock()
	return l.Listener.Close()
}

func (n *network) dial(ctx context.Context, at string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "slicertest", Addr: address(at), Err: errors.New("connection refused")}
	}
	return l.DialContext(ctx)
}
