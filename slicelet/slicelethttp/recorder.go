package slicelethttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// recorder notes the code of an answer. It offers what servers' writers do, for
// handlers that ask for it by type; http.ResponseController finds the rest.
type recorder struct {
	http.ResponseWriter
	code int // 0 before there is one
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.begun()
	return r.ResponseWriter.Write(p)
}

// ReadFrom lets the server send files without a copy.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	r.begun()
	return io.Copy(r.ResponseWriter, src)
}

// Flush is http.Flusher's.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is for http.ResponseController.
func (r *recorder) FlushError() error {
	r.begun()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack is http.Hijacker's.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil && r.code == 0 {
		r.code = http.StatusSwitchingProtocols
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
