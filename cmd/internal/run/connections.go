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
	open *limiter.Shares // by address
}

func limitConnections(lis net.Listener) *connections {
	return &connections{lis, limiter.NewShares(maxConnections, maxConnectionsEach)}
}

func (l *connections) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if address := limiter.KeyOf(c.RemoteAddr()); l.open.Take(address) == nil {
			return &connection{Conn: c, end: sync.OnceFunc(func() { l.open.Give(address) })}, nil
		}
		_ = c.Close()
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
