package handover

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

// Server has the entries of some ranges in its memory. It is an http.Handler.
type Server struct {
	slicelet *slicelet.Slicelet
	mux      http.ServeMux
	peers    http.Client

	mu      sync.Mutex
	ranges  ranges
	changed chan struct{} // closed when the state of a part has changed
}

// New makes a server of a task. The entries of the keys that it comes to own are
// fetched from now on.
func New(s *slicelet.Slicelet) *Server { return newServer(s, &http.Transport{}) }

func newServer(s *slicelet.Slicelet, peers http.RoundTripper) *Server {
	srv := &Server{slicelet: s, peers: http.Client{Transport: peers}, ranges: newRanges(), changed: make(chan struct{})}
	srv.mux.HandleFunc("GET /entry", srv.get)
	srv.mux.HandleFunc("PUT /entry", srv.put)
	srv.mux.HandleFunc("POST /take", answer(srv.take))
	srv.mux.HandleFunc("POST /drop", answer(srv.drop))
	s.Listen(srv)
	return srv
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	s.serveLocked(w, r, key, func(rows map[string]uint64) {
		if n, ok := rows[key]; ok {
			_, _ = w.Write(strconv.AppendUint(nil, n, 10))
		} else {
			http.Error(w, "no such entry", http.StatusNotFound)
		}
	})
}

// put writes a number, unless there is a higher one: a write that a client has sent
// twice may arrive late.
func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	n, err := strconv.ParseUint(r.FormValue("n"), 10, 64)
	if err != nil || assignment.CheckKey(key) != nil {
		http.Error(w, "want a key and a number n", http.StatusBadRequest)
		return
	}
	s.serveLocked(w, r, key, func(rows map[string]uint64) { rows[key] = max(rows[key], n) })
}

// serveLocked calls do with the entries of the key's range, if they are here or come in
// time. The lock is held, so that the range stays here until do has returned.
func (s *Server) serveLocked(w http.ResponseWriter, r *http.Request, key string, do func(rows map[string]uint64)) {
	h := s.slicelet.Handle(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ranges[s.ranges.find(h.Key())]
	for ; p.state == loading && r.Context().Err() == nil; p = s.ranges[s.ranges.find(h.Key())] {
		s.waitLocked(r.Context())
	}
	if p.state != here || s.slicelet.Mode() == assignment.Consistent && !h.AssignedContinuously() {
		http.Error(w, "not here, ask the owner", http.StatusMisdirectedRequest)
		return
	}
	do(p.rows)
}

// waitLocked waits until the state of some part changes, or ctx ends. The lock is held,
// but not meanwhile.
func (s *Server) waitLocked(ctx context.Context) {
	changed := s.changed
	s.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	s.mu.Lock()
}

// setLocked changes the state of a part. The lock is held.
func (s *Server) setLocked(p *part, to state) {
	p.state = to
	close(s.changed)
	s.changed = make(chan struct{})
}

// Emptied waits until other servers have taken all that is here. Call it after
// Slicelet.Drain, which has told the listener the last departure, and go on serving
// until it returns.
func (s *Server) Emptied(ctx context.Context) error {
	defer s.peers.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.any(here) || s.any(frozen) {
		if s.waitLocked(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *Server) any(in state) bool {
	for _, p := range s.ranges {
		if p.state == in {
			return true
		}
	}
	return false
}

// answer makes a handler of a function from one JSON value to another.
func answer[Q, A any](f func(Q) A) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(f(q))
	}
}
