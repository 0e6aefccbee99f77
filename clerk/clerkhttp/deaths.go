package clerkhttp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// deaths is the connections to one incarnation of a task. When the task is said to be dead it closes
// those on which a request that may be carried out twice waits for its answer to begin: what a
// flight.Group does by a context for each request, which costs more than all else that a Transport adds
// to one of net/http. Nothing is connected to then any more, since nothing has been sent yet. All methods
// are safe for concurrent use.
type deaths struct {
	life context.Context // until the task is dead
	end  context.CancelCauseFunc

	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newDeaths() *deaths {
	d := &deaths{conns: map[*conn]struct{}{}}
	d.life, d.end = context.WithCancelCause(context.Background())
	return d
}

// connect is dial until the task is dead: net/http, too, sends a request again whose connection was
// closed, over another. Its errors say that no task was reached.
func (d *deaths) connect(ctx context.Context, network, address string, dial dial) (net.Conn, error) {
	if d.dead() {
		return nil, clerk.Unreached{Err: flight.ErrDead}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	nc, err := dial(ctx, network, address)
	if err == nil {
		return nc, nil
	}
	if d.dead() {
		err = flight.ErrDead
	}
	return nil, clerk.Unreached{Err: err}
}

func (d *deaths) dead() bool { return d.life.Err() != nil }

func (d *deaths) add(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
}

func (d *deaths) remove(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// die also ends what comes late.
func (d *deaths) die() {
	d.end(flight.ErrDead) // before it looks which wait: wait does both in the other order
	d.mu.Lock()
	var waiting []*conn
	for c := range d.conns {
		if c.waits.Load() {
			waiting = append(waiting, c)
		}
	}
	d.mu.Unlock()
	for _, c := range waiting {
		c.kill()
	}
}

// wait says that a request which may be carried out twice is going to be written. It waits until
// something is read.
func (c *conn) wait() {
	c.waits.Store(true)
	if c.pool.deaths.dead() {
		c.kill()
	}
}

// kill has reads and writes fail with flight.ErrDead.
func (c *conn) kill() {
	c.killed.Store(true)
	_ = c.Conn.Close() // net/http closes c for the error
}

// why is the error of a read or a write that failed.
func (c *conn) why(err error) error {
	c.broken.Store(true)
	if c.killed.Load() {
		return flight.ErrDead
	}
	return err
}

// byConnection reports whether a request can be ended by its connection: whether that will be one of
// HTTP/1.1 to the task itself, for the request alone.
func (t *Transport) byConnection(req *http.Request) bool {
	base := t.cfg.Base
	return t.cfg.ResponseTimeout == 0 && base.Proxy == nil && (base.Protocols == nil || !base.Protocols.UnencryptedHTTP2()) && req.URL.Scheme == "http"
}

var waiting = httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
	if c, ok := info.Conn.(*conn); ok {
		c.wait()
	}
}}

// withWaiting has the connection of a request know that it is one that may be carried out twice.
func withWaiting(ctx context.Context) context.Context {
	trace := &waiting
	if httptrace.ContextClientTrace(ctx) != nil {
		own := waiting // into which the request's is put
		trace = &own
	}
	return httptrace.WithClientTrace(ctx, trace)
}
