package clerkhttp

import (
	"io"
	"sync/atomic"

	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// counted is a response's body, at whose end the request is not outstanding any
// more.
type counted struct {
	io.ReadCloser
	b      *backend       // nil if it does not count
	flight *flight.Flight // nil if it has none
	over   atomic.Bool
}

// of is c for an answer's body. It leaves an upgraded connection's body writable.
func (c *counted) of(body io.ReadCloser, b *backend, count bool, f *flight.Flight) io.ReadCloser {
	c.ReadCloser, c.flight = body, f
	if count {
		c.b = b
	}
	if w, ok := body.(io.Writer); ok {
		return struct {
			*counted
			io.Writer
		}{c, w}
	}
	return c
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *counted) Close() error {
	err := c.ReadCloser.Close()
	c.end()
	return err
}

func (c *counted) end() {
	if c.over.CompareAndSwap(false, true) {
		if c.b != nil {
			c.b.over()
		}
		if c.flight != nil {
			c.flight.End()
		}
	}
}

// CloseWrite ends one direction of an upgraded connection.
func (c *counted) CloseWrite() error {
	if half, ok := c.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
