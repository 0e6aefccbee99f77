package demo

import (
	"context"
	"errors"
	"net"
	"sync"
)

// errCut is the error of a connection over a cut cable.
var errCut = errors.New("the server is dead")

// cable is every network connection that a server has, in and out. Cutting it is what
// kill -9 is to a process: all connections end at once, nothing is said first, and
// nothing listens any more.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns map[*plug]struct{}
	lis   []net.Listener
}

func newCable() *cable { return &cable{conns: map[*plug]struct{}{}} }

// listener is lis, until the cable is cut.
func (c *cable) listener(lis net.Listener) net.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lis = append(c.lis, lis)
	return &socket{lis, c}
}

// dial makes a connection that is part of the cable.
func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.plug(conn)
}

func (c *cable) plug(conn net.Conn) (net.Conn, error) {
	p := &plug{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		conn.Close()
		return nil, errCut
	}
	c.conns[p] = struct{}{}
	return p, nil
}

// sever cuts the cable, for good.
func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, l := range c.lis {
		l.Close()
	}
	for p := range c.conns {
		// What is not sent yet is never sent.
		if t, ok := p.Conn.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		p.Conn.Close()
	}
}

type socket struct {
	net.Listener
	c *cable
}

func (s *socket) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.c.plug(conn)
}

// plug is a connection that leaves the cable when it is closed.
type plug struct {
	net.Conn
	c *cable
}

func (p *plug) Close() error {
	p.c.mu.Lock()
	delete(p.c.conns, p)
	p.c.mu.Unlock()
	return p.Conn.Close()
}
