package clerkhttp

import (
	"io"
	"sync/atomic"
)

// counted is a response's body, at whose end the request is not outstanding any
// more.
type counted struct {
	io.ReadCloser
	b    *backend
	over atomic.Bool
}

// of is c for an answer's body. It leaves an upgraded connection's body writable.
func (c *counted) of(body io.ReadCloser, b *backend) io.ReadCloser {
	c.ReadCloser, c.b = body, b
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
	c.end()
	return c.ReadCloser.Close()
}

func (c *counted) end() {
	if c.over.CompareAndSwap(false, true) {
		c.b.outstanding.Add(-1)
	}
}

// CloseWrite ends one direction of an upgraded connection.
func (c *counted) CloseWrite() error {
	if half, ok := c.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
