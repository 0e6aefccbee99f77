package page

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
)

const (
	// writeWithin is how long a viewer may take for what it is sent at a time.
	writeWithin = 15 * time.Second
	// askAgain is how often it is asked whether a viewer may still see what it sees, and the
	// longest silence.
	askAgain = 5 * time.Second
)

// events sends a viewer what is read of a job, or of all.
func (p *Page) events(w http.ResponseWriter, r *http.Request, v viewer) {
	job := r.URL.Query().Get("job")
	if job != "" {
		if err := assignment.ValidateJobName(job); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	from := limiter.KeyOfAddress(r.RemoteAddr)
	err := p.viewers.Take(from)
	switch {
	case errors.Is(err, limiter.ErrShareTaken):
		http.Error(w, fmt.Sprintf("%d pages at your address are being sent news, no more are allowed: close some", MaxFromOne), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, fmt.Sprintf("%d pages are being sent news, no more are allowed: close some", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	if job != "" {
		err = p.mayRead(r.Context(), v, job)
	}
	if err != nil {
		p.viewers.Give(from)
		http.Error(w, status.Convert(err).Message(), httpStatus(err))
		return
	}
	f, leave := p.follow(job, from)
	if f == nil {
		p.viewers.Give(from)
		http.Error(w, "the process ends", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	s := sending{p: p, v: v, job: job, w: w, to: http.NewResponseController(w), sent: make(map[string]uint64), last: make(map[string][]byte)}
	s.run(r, f)
}

// sending is one viewer's stream.
type sending struct {
	p    *Page
	v    viewer
	job  string
	w    http.ResponseWriter
	to   *http.ResponseController
	sent map[string]uint64 // version of each part
	jobs map[string]bool   // that it may read, in the overview
	last map[string][]byte // that it was sent of each part of which it sees some
}

func (s *sending) run(r *http.Request, f *feed) {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	_, policy := s.p.cfg.Rights.Policy()
	if !s.allowed(r) {
		return
	}
	if s.write([]byte("retry: 2000\n\n")) != nil { // the answer has begun before the first reading
		return
	}
	for {
		parts, changed := f.now()
		if s.news(parts) != nil {
			return
		}
		select {
		case <-changed:
		case <-policy:
			if _, policy = s.p.cfg.Rights.Policy(); !s.allowed(r) {
				return
			}
		case <-again.C:
			if !s.allowed(r) || s.write([]byte(":\n\n")) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.p.ctx.Done():
			return
		}
	}
}

// allowed looks up what the viewer may see, and reports whether that is something.
func (s *sending) allowed(r *http.Request) bool {
	v, ok := s.p.admit(r)
	if !ok {
		return false
	}
	s.v = v
	if s.job != "" {
		err := s.p.mayRead(r.Context(), v, s.job)
		return err == nil || !refuses(err)
	}
	jobs, all, err := s.p.readable(r.Context(), v)
	switch {
	case all:
		s.jobs = nil
	case err == nil:
		s.jobs = jobs
	case s.jobs == nil:
		s.jobs = map[string]bool{} // it is not known what it may see
	}
	return true
}

// news sends the parts that are newer than what was sent.
func (s *sending) news(parts []part) error {
	var out [][]byte // what has been read is not copied, as all viewers share it
	for i := range parts {
		p := &parts[i]
		data := p.data
		var limited []byte
		if !s.v.all {
			limited = p.limited(s.jobs)
		}
		if limited != nil {
			if data = limited; bytes.Equal(data, s.last[p.event]) {
				continue
			}
			s.last[p.event] = data
		} else if s.sent[p.event] == p.version {
			continue
		}
		s.sent[p.event] = p.version
		out = append(out, []byte("event: "+p.event+"\ndata: "), data, []byte("\n\n"))
	}
	if out == nil {
		return nil
	}
	return s.write(out...)
}

func (s *sending) write(data ...[]byte) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	for _, d := range data {
		if _, err := s.w.Write(d); err != nil {
			return err
		}
	}
	return s.to.Flush()
}

func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.FailedPrecondition:
		return http.StatusConflict
	}
	return http.StatusBadGateway
}
