// Package pings counts the pings with which gRPC measures how much is under way at a time, to make its
// windows fit (bdp_estimator.go of grpc-go).
package pings

import (
	"bytes"
	"net"
	"sync/atomic"
)

// payload is that of such a ping. Those of keepalive have zeros.
var payload = []byte{2, 4, 16, 16, 9, 14, 7, 7}

// Counter counts what is written to its connections. All methods are safe for concurrent use.
type Counter struct{ n atomic.Int64 }

// Seen is how many have been written so far, answers to the other side's included.
func (c *Counter) Seen() int { return int(c.n.Load()) }

// Conn counts what is written to a connection.
func (c *Counter) Conn(to net.Conn) net.Conn { return conn{to, c} }

// Listener counts what is written to the connections that it accepts.
func (c *Counter) Listener(l net.Listener) net.Listener { return listener{l, c} }

type conn struct {
	net.Conn
	c *Counter
}

func (c conn) Write(p []byte) (int, error) {
	c.c.n.Add(int64(bytes.Count(p, payload)))
	return c.Conn.Write(p)
}

type listener struct {
	net.Listener
	c *Counter
}

func (l listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.c.Conn(nc), nil
}
