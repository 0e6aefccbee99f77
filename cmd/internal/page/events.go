package page

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
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
		if err := p.mayRead(r.Context(), v, job); err != nil {
			http.Error(w, status.Convert(err).Message(), httpStatus(err))
			return
		}
	}
	select {
	case p.viewers <- struct{}{}:
		defer func() { <-p.viewers }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are being sent news, no more are allowed: close some", MaxViewers), http.StatusServiceUnavailable)
		return
	}
	f, leave := p.follow(job)
	if f == nil {
		http.Error(w, "the process ends", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	s := sending{p: p, v: v, job: job, w: w, to: http.NewResponseController(w), sent: make(map[string]uint64)}
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
	last []byte            // that it was sent of what it may read
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
		return s.p.mayRead(r.Context(), v, s.job) == nil
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
	var b bytes.Buffer
	for i := range parts {
		p := &parts[i]
		data := p.data
		if p.rows != nil && !s.v.all {
			if data = p.only(s.jobs); bytes.Equal(data, s.last) {
				continue
			}
			s.last = data
		} else if s.sent[p.event] == p.version {
			continue
		}
		s.sent[p.event] = p.version
		b.WriteString("event: ")
		b.WriteString(p.event)
		b.WriteString("\ndata: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return s.write(b.Bytes())
}

func (s *sending) write(data []byte) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	if _, err := s.w.Write(data); err != nil {
		return err
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
