package main

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// fork tells the connections of gRPC from those of HTTP/1 by their first byte, so
// that a task serves both at one address.
type fork struct {
	net.Listener
	http, grpc *branch
	once       sync.Once
	closed     error
}

// patience is how long a connection may stay silent at first.
const patience = 10 * time.Second

func newFork(l net.Listener) *fork {
	f := &fork{Listener: l}
	f.http, f.grpc = newBranch(f), newBranch(f)
	go f.accept()
	return f
}

// Close is called by both servers.
func (f *fork) Close() error {
	f.once.Do(func() { f.closed = f.Listener.Close() })
	return f.closed
}

func (f *fork) accept() {
	for {
		c, err := f.Accept()
		if err != nil {
			f.http.end(err)
			f.grpc.end(err)
			return
		}
		go func() {
			p := &peeked{Conn: c, r: bufio.NewReader(c)}
			_ = c.SetReadDeadline(time.Now().Add(patience))
			first, err := p.r.Peek(1)
			if err != nil {
				_ = c.Close()
				return
			}
			_ = c.SetReadDeadline(time.Time{})
			to := f.http
			if first[0] == 'P' { // "PRI * HTTP/2.0"; there are no POSTs or PUTs here
				to = f.grpc
			}
			select {
			case to.conns <- p:
			case <-to.over:
				_ = c.Close()
			}
		}()
	}
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// branch is the listener of one protocol. Closing either closes both.
type branch struct {
	fork  *fork
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
	err   error
}

func newBranch(f *fork) *branch {
	return &branch{fork: f, conns: make(chan net.Conn), over: make(chan struct{})}
}

func (b *branch) end(err error) {
	b.once.Do(func() { b.err = err; close(b.over) })
}

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.over:
		return nil, b.err
	}
}

func (b *branch) Close() error {
	b.end(net.ErrClosed)
	return b.fork.Close()
}

func (b *branch) Addr() net.Addr { return b.fork.Addr() }
