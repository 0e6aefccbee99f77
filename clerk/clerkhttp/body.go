package clerkhttp

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxKept bounds how much of a body is kept to be sent again, bytes.
const maxKept = 64 << 10

// BodyError is that of a request whose own body could not be read.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return "read the request's body: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *BodyError) Unwrap() error { return e.Err }

var errSuperseded = errors.New("the request is being sent again")

// body is a request's body that may have to be sent again: until it has been
// read, or for as long as all that was read is kept.
type body struct {
	src  io.ReadCloser
	keep bool

	mu      sync.Mutex
	head    []byte // what was read, if it is kept
	lost    bool   // something was read that is not in head
	reading bool
	now     *attempt
	final   bool  // now is the last
	err     error // of src, but for its end
}

// attempt is what one http.Transport reads, perhaps for some time after its
// RoundTrip has returned.
type attempt struct {
	b      *body
	off    int
	closed bool
}

// newBody takes the body over. With keep a small one is kept.
func newBody(src io.ReadCloser, keep bool) *body {
	b := &body{src: src, keep: keep}
	b.now = &attempt{b: b}
	return b
}

func (a *attempt) Read(p []byte) (int, error) {
	b := a.b
	b.mu.Lock()
	switch {
	case b.now != a:
		b.mu.Unlock()
		return 0, errSuperseded
	case a.closed:
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	case a.off < len(b.head):
		n := copy(p, b.head[a.off:])
		a.off += n
		b.mu.Unlock()
		return n, nil
	}
	b.reading = true
	b.mu.Unlock()
	n, err := b.src.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if err != nil && err != io.EOF {
		b.err = err
	}
	switch {
	case n <= 0:
	case b.keep && !b.lost && len(b.head)+n <= maxKept:
		b.head = append(b.head, p[:n]...)
		a.off += n
	default:
		b.lost, b.head = true, nil
		a.off = 0
	}
	return n, err
}

// Close closes the source once no other attempt will read it.
func (a *attempt) Close() error {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	first := !a.closed
	a.closed = true
	if first && a.b.final && a.b.now == a {
		return a.b.src.Close()
	}
	return nil
}

// again ends the attempt and returns the next, from the beginning; nil if there
// can be none.
func (b *body) again() *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading || b.lost || b.err != nil {
		return nil
	}
	b.now = &attempt{b: b}
	return b.now
}

// last says that the attempt is the last, and with an error that nothing waits for what
// it does with the body. The error returned is the body's own, if that is behind it.
func (b *body) last(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final = true
	if err != nil && b.err != nil {
		err = &BodyError{b.err}
	}
	if b.now.closed || err != nil && !b.reading {
		b.now.closed = true
		_ = b.src.Close()
	}
	return err
}
