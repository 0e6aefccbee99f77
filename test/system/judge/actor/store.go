package main

import (
	"context"
	"sync"

	"github.com/slicer-project/slicer/assignment"
)

// Fence is what a request to the store carries: an older one is refused. Among the
// requests of one owner, which have the same token, Seq tells which is newer, so that one
// that was on its way for long cannot undo a later one.
type Fence struct {
	Token assignment.Generation
	Seq   uint64
}

func (f Fence) older(g Fence) bool {
	return f.Token < g.Token || f.Token == g.Token && f.Seq <= g.Seq
}

// StoreRequest reads a register, or writes it, and raises its fence.
type StoreRequest struct {
	Key   string
	Fence Fence
	Write bool
	Value string
}

// StoreResponse is the value that is stored then.
type StoreResponse struct {
	Stale bool // the fence was too old: nothing was done
	Value string
}

// registerStore keeps registers, each with the newest fence that it has seen.
type registerStore struct {
	mu        sync.Mutex
	registers map[string]*stored
	ignore    bool
}

type stored struct {
	fence Fence
	value string
}

// Do carries out a request.
func (s *registerStore) Do(req StoreRequest, resp *StoreResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.registers[req.Key]
	if r == nil {
		r = &stored{}
		s.registers[req.Key] = r
	}
	if !s.ignore && req.Fence.older(r.fence) {
		resp.Stale = true
		return nil
	}
	r.fence = req.Fence
	if req.Write {
		r.value = req.Value
	}
	resp.Value = r.value
	return nil
}

func serveStore(ctx context.Context, cfg Config) error {
	return serveRPC(ctx, cfg.Addresses[0], &registerStore{registers: map[string]*stored{}, ignore: cfg.IgnoreTokens})
}
