package clerkhttp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// A request over HTTP/1.1 that may be carried out twice is ended by its connection when its task is said
// to be dead before the answer begins: a flight of the connection costs less than one of each request,
// which has a context for it that net/http has to make another of.

// connect is dial until the task is dead: nothing has been sent yet, and net/http, too, sends a request
// again whose connection was closed, over another. Its errors say that no task was reached.
func (p *pool) connect(ctx context.Context, network, address string, dial dial) (nc net.Conn, err error) {
	ctx, f := flight.New(ctx)
	defer f.End()
	f.At(p.flights)
	dead := func() bool { return context.Cause(ctx) == flight.ErrDead }
	if !dead() {
		if nc, err = dial(ctx, network, address); err == nil {
			return nc, nil
		}
	}
	if dead() {
		err = flight.ErrDead
	}
	return nil, clerk.Unreached{Err: err}
}

// wait says that a request which may be carried out twice is going to be written. It waits until
// something is read.
func (c *conn) wait() {
	c.waits.Store(true)
	c.flight.At(c.pool.flights)
}

// waited reports whether a request waited that does not from now on.
func (c *conn) waited() bool { return c.waits.Load() && c.waits.CompareAndSwap(true, false) }

// die has reads and writes fail with flight.ErrDead if a request still waits.
func (c *conn) die(error) {
	if c.waited() {
		c.killed.Store(true)
		_ = c.Conn.Close() // net/http closes c for the error
	}
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
