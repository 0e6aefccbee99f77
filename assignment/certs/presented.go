package certs

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// refusedError is that a connection has ended before the server has said anything. With TLS
// 1.3 that is how a client learns that its certificate was refused, if not by an alert: its
// own handshake is through by then, and gRPC says that it could not read.
type refusedError struct {
	err  error
	file string // of the certificate that was presented, empty if none was
}

// Error says which certificate it was.
func (e *refusedError) Error() string {
	if e.file == "" {
		return fmt.Sprintf("%v (no certificate was presented: if the server demands one, its log says so)", e.err)
	}
	return fmt.Sprintf("%v (the certificate of %s was presented: if the server has refused it, its log says why)", e.err, e.file)
}

// Unwrap returns the cause.
func (e *refusedError) Unwrap() error { return e.err }

// presented adds to an error which certificate the server may have refused.
func (s *Source) presented(err error) error {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return err
	}
	if reason := reasonOf(err.Error()); reason != closed && reason != refusedByClient {
		return err
	}
	e := &refusedError{err: err}
	for _, f := range s.slots {
		if f.of == Certificate {
			e.file = f.paths[0]
		}
	}
	return e
}

// unheard is a client's connection, of whose errors it is said which certificate was
// presented until the server has said something.
type unheard struct {
	net.Conn
	source *Source
	heard  atomic.Bool
}

// Read is net.Conn's.
func (c *unheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.heard.Load() {
		return n, err
	}
	if n > 0 {
		c.heard.Store(true)
		return n, err
	}
	return n, c.source.presented(err)
}

// Write is net.Conn's.
func (c *unheard) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && !c.heard.Load() {
		err = c.source.presented(err)
	}
	return n, err
}
