package suite

import (
	"net"
	"sync"
)

// listener listens on a port of the loopback interface, and can be down, which is to end each
// connection at once, or frozen, which is to take what is sent and to say nothing any more.
type listener struct {
	net.Listener

	mu     sync.Mutex
	down   bool
	frozen chan struct{} // closed when it is no longer
	conns  map[*conn]bool
}

func listen() (*listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, conns: make(map[*conn]bool)}, nil
}

// Accept is net.Listener's.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if mine := l.admit(c); mine != nil {
			return mine, nil
		}
		_ = c.Close()
	}
}

func (l *listener) admit(c net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil
	}
	mine := &conn{Conn: c, l: l}
	l.conns[mine] = true
	return mine
}

// setDown ends all connections, and those to come, or begins to take them.
func (l *listener) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for c := range l.conns {
		if down {
			_ = c.Conn.Close()
		}
	}
}

// freeze stops all connections, as a network does that drops packets.
func (l *listener) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

func (l *listener) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

func (l *listener) ice() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

type conn struct {
	net.Conn
	l *listener
}

// Read is net.Conn's. What has come while the listener is frozen is not seen before it no
// longer is.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if ice := c.l.ice(); ice != nil && err == nil {
		<-ice
	}
	return n, err
}

// Write is net.Conn's. What is written while the listener is frozen is lost.
func (c *conn) Write(b []byte) (int, error) {
	if c.l.ice() != nil {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close is net.Conn's.
func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
