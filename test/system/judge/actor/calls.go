package main

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"sync"
	"time"
)

// errNotSent: no server can have received the request.
var errNotSent = errors.New("not sent")

// peers are connections to other processes, by address.
type peers struct {
	mu    sync.Mutex
	conns map[string]*rpc.Client
}

func (p *peers) get(ctx context.Context, addr string) (*rpc.Client, error) {
	p.mu.Lock()
	c := p.conns[addr]
	p.mu.Unlock()
	if c != nil {
		return c, nil
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c = rpc.NewClient(conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.conns[addr]; first != nil {
		_ = c.Close()
		return first, nil
	}
	if p.conns == nil {
		p.conns = map[string]*rpc.Client{}
	}
	p.conns[addr] = c
	return c, nil
}

// call sends a request once. Unless the error matches errNotSent it may have been
// carried out, or may yet be.
func (p *peers) call(ctx context.Context, addr, method string, req, resp any) error {
	c, err := p.get(ctx, addr)
	if err != nil {
		return errors.Join(errNotSent, err)
	}
	call := c.Go(method, req, resp, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		err = call.Error
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	var said rpc.ServerError
	if err != nil && !errors.As(err, &said) {
		p.mu.Lock()
		if p.conns[addr] == c {
			delete(p.conns, addr)
		}
		p.mu.Unlock()
		// Others may wait for answers on it yet: it is closed when they have given up.
		time.AfterFunc(15*time.Second, func() { _ = c.Close() })
	}
	return err
}

// serveRPC serves until ctx ends.
func serveRPC(ctx context.Context, addr string, receiver any) error {
	srv := rpc.NewServer()
	if err := srv.RegisterName("Registers", receiver); err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go srv.ServeConn(conn) // until the other end or this process ends
	}
}
