package slicelethttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// recorder notes the code of an answer. It offers what servers' writers do, for
// handlers that ask for it by type; http.ResponseController finds the rest.
type recorder struct {
	http.ResponseWriter
	code int // 0 before there is one
	// over: the request has been ended, and nothing is written any more.
	over atomic.Bool
	// hijacked makes of a connection that the handler takes over what it gets; may be nil.
	hijacked func(net.Conn) net.Conn
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	if r.over.Load() {
		return
	}
	if r.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.over.Load() {
		return 0, ErrMoved
	}
	r.begun()
	return r.ResponseWriter.Write(p)
}

// ReadFrom lets the server send files without a copy.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	if r.over.Load() {
		return 0, ErrMoved
	}
	r.begun()
	return io.Copy(r.ResponseWriter, src)
}

// Flush is http.Flusher's.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is for http.ResponseController.
func (r *recorder) FlushError() error {
	if r.over.Load() {
		return ErrMoved
	}
	r.begun()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack is http.Hijacker's.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if r.over.Load() {
		return nil, nil, ErrMoved
	}
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
	}
	if err == nil && r.hijacked != nil {
		c = r.hijacked(c)
		rw = bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(c, rw.Writer.Size()))
	}
	return c, rw, err
}

func (r *recorder) begun() {
	if r.code == 0 {
		r.code = http.StatusOK
	}
}

// end is the end of the handler, upon which the server says 200 if it has said
// nothing.
func (r *recorder) end() { r.begun() }
