package clerkhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// pool is the connections to one task.
type pool struct {
	http    *http.Transport
	warm    bool
	flights *flight.Group // of the task
	// why is 1 + the clerk.CloseCause of the pool's end, 0 before.
	why atomic.Int32
}

// newPool makes one without connections.
func newPool(cfg *Config, warm bool, flights *flight.Group) *pool {
	ck := cfg.Clerk
	p := &pool{http: cfg.Base.Clone(), warm: warm, flights: flights}
	if !warm && (p.http.IdleConnTimeout == 0 || p.http.IdleConnTimeout > idleOnDemand) {
		p.http.IdleConnTimeout = idleOnDemand
	}
	if p.http.DialContext == nil {
		p.http.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	p.http.DialContext = p.counted(ck, p.http.DialContext)
	switch {
	case cfg.TLS != nil:
		p.http.TLSClientConfig, p.http.DialTLSContext = nil, p.secured(p.http.DialContext, cfg.TLS)
	case p.http.DialTLSContext != nil:
		p.http.DialTLSContext = p.counted(ck, p.http.DialTLSContext)
	}
	return p
}

// retire closes idle connections, and others once their requests are done.
func (p *pool) retire(why clerk.CloseCause) {
	p.why.CompareAndSwap(0, int32(why)+1)
	p.http.CloseIdleConnections()
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// counted lets the clerk count connections; an error says that no task was reached.
func (p *pool) counted(ck *clerk.Clerk, d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := p.connect(ctx, network, address, d)
		if err != nil {
			return nil, err
		}
		why := clerk.OpenOnDemand
		if p.warm {
			why = clerk.OpenWarm
		}
		ck.ConnectionOpened(why)
		c := &conn{Conn: nc, pool: p, clerk: ck}
		c.flight = flight.Of(c.die)
		return c, nil
	}
}

// conn knows why it ends.
type conn struct {
	net.Conn
	pool   *pool
	clerk  *clerk.Clerk
	flight *flight.Flight
	waits  atomic.Bool // a request that may be carried out twice, for its answer to begin
	killed atomic.Bool // as the task was said to be dead meanwhile
	broken atomic.Bool
	closed atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.waited() {
		c.flight.Leave()
	}
	if err != nil {
		err = c.why(err)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		err = c.why(err)
	}
	return n, err
}

// ReadFrom lets files be sent without a copy.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// CloseWrite ends one direction, which upgraded connections use.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.flight.Land()
		why := clerk.CloseIdle
		if retired := c.pool.why.Load(); retired > 0 {
			why = clerk.CloseCause(retired - 1)
		} else if c.broken.Load() {
			why = clerk.CloseFailed
		}
		c.clerk.ConnectionClosed(why)
	}
	return c.Conn.Close()
}
