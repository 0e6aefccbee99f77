package run

import (
	"net"
	"sync"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// Bounds of connections to the HTTP port: in TLS one takes some 50 KiB, whatever is asked for
// over it. maxConnections are open at a time, maxConnectionsEach of them from one address. Any
// more are closed at once.
const maxConnections, maxConnectionsEach = 1024, 64

// connections is a listener that limits those that are open.
type connections struct {
	net.Listener

	mu  sync.Mutex
	all int
	of  map[string]int // by address
}

func limitConnections(lis net.Listener) *connections {
	return &connections{Listener: lis, of: make(map[string]int)}
}

func (l *connections) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if address := limiter.KeyOf(c.RemoteAddr()); l.begin(address) {
			return &connection{Conn: c, end: sync.OnceFunc(func() { l.end(address) })}, nil
		}
		_ = c.Close()
	}
}

func (l *connections) begin(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConnections || l.of[address] >= maxConnectionsEach {
		return false
	}
	l.all++
	l.of[address]++
	return true
}

func (l *connections) end(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[address]--; l.of[address] == 0 {
		delete(l.of, address)
	}
}

type connection struct {
	net.Conn
	end func()
}

func (c *connection) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}
