package slicelethttp

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"
)

// maxHeld bounds how much of an answer is kept back until the handler ends, bytes, so
// that a small answer can still become another.
const maxHeld = 16 << 10

// errLost is what a handler gets that writes after its task has lost the key.
var errLost = errors.New("slicer: the task has lost the request's key: the answer is held back")

// checked is a writer that lets an answer out only while the request's key has been
// owned throughout: a small one all at once when the handler ends, of others each
// part. What a hijacked connection carries is the handler's business.
type checked struct {
	http.ResponseWriter
	owned  func() bool
	before http.Header // what was in the header before the handler, nil if nothing

	code     int         // that the handler has said, 0 before
	header   http.Header // as it was then: what comes later is for trailers
	held     []byte
	begun    bool // something was let out
	hijacked bool
	lost     bool
}

func newCheckedWriter(w http.ResponseWriter, owned func() bool) *checked {
	c := &checked{ResponseWriter: w, owned: owned}
	if h := w.Header(); len(h) > 0 {
		c.before = h.Clone()
	}
	return c
}

// Unwrap is for http.ResponseController, for what does not let anything out.
func (c *checked) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// check reports whether something may be let out now.
func (c *checked) check() bool {
	c.lost = c.lost || !c.owned()
	return !c.lost
}

// WriteHeader notes the code of the answer; what comes before an answer is sent.
func (c *checked) WriteHeader(code int) {
	switch {
	case c.code != 0:
	case code >= 100 && code < 200 && code != http.StatusSwitchingProtocols:
		if c.check() {
			c.ResponseWriter.WriteHeader(code)
		}
	default:
		c.code, c.header = code, c.Header().Clone()
	}
}

// Write keeps what it is given as long as that is little, and else sends it.
func (c *checked) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK) // unless it has said another
	if c.code == http.StatusNoContent || c.code == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	if !c.begun && len(c.held)+len(p) <= maxHeld {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	if err := c.release(); err != nil {
		return 0, err
	}
	return c.ResponseWriter.Write(p)
}

// release sends what is kept.
func (c *checked) release() error {
	if !c.check() {
		return errLost
	}
	if c.begun {
		return nil
	}
	c.begun = true
	if c.code != 0 {
		late := maps.Clone(c.Header())
		c.setHeader(c.header)
		c.ResponseWriter.WriteHeader(c.code)
		c.setHeader(late)
	}
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.ResponseWriter.Write(c.held)
	c.held = nil
	return err
}

// FlushError is for http.ResponseController.
func (c *checked) FlushError() error {
	if err := c.release(); err != nil {
		return err
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Hijack is http.Hijacker's.
func (c *checked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !c.check() {
		return nil, nil, errLost
	}
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	c.hijacked = err == nil
	return conn, rw, err
}

// finish sends what is left when the handler has ended, and reports whether the
// whole answer could be let out.
func (c *checked) finish() bool { return c.hijacked || c.release() == nil || !c.lost }

// discard forgets what the handler has put into an answer that was not begun.
func (c *checked) discard() { c.setHeader(c.before) }

func (c *checked) setHeader(to http.Header) {
	h := c.Header()
	clear(h)
	maps.Copy(h, to)
}
