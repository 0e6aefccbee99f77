package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

// claim is what an owner asks for: ranges that it owns in a generation.
type claim struct {
	Generation assignment.Generation
	Ranges     []assignment.Slice
}

// taken answers a claim.
type taken struct {
	// Late are ranges that a newer owner has asked for.
	Late []assignment.Slice
	// Busy: some ranges are on their way here. Ask again.
	Busy bool
	// Ranges are frozen here from now on, with these entries.
	Ranges []assignment.Slice
	Rows   map[string]uint64
}

// take freezes what is here of the ranges.
func (s *Server) take(c claim) taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := taken{Rows: map[string]uint64{}}
	for _, p := range s.partsLocked(c.Ranges) {
		if p.asked > c.Generation {
			t.Late = append(t.Late, p.Slice)
			continue
		}
		p.asked = c.Generation
		switch p.state {
		case loading:
			t.Busy = true
		case here, frozen:
			s.setLocked(p, frozen)
			t.Ranges = append(t.Ranges, p.Slice)
			maps.Copy(t.Rows, p.rows)
		}
	}
	return t
}

// drop gives frozen ranges away for good, and returns those that are the asker's
// now. To ask twice is as good as once.
func (s *Server) drop(c claim) (given []assignment.Slice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partsLocked(c.Ranges) {
		if p.state == frozen && p.asked == c.Generation {
			p.given, p.rows = c.Generation, map[string]uint64{}
			s.setLocked(p, away)
		}
		if p.given == c.Generation {
			given = append(given, p.Slice)
		}
	}
	return given
}

// partsLocked are those of ranges that another server has named. The lock is held.
func (s *Server) partsLocked(ranges []assignment.Slice) (parts []*part) {
	for _, r := range ranges {
		if r.Valid() == nil {
			parts = append(parts, s.ranges.of(r)...)
		}
	}
	return parts
}

// SlicesChanged fetches what has arrived. What has departed stays until its new owner
// takes it.
func (s *Server) SlicesChanged(ctx context.Context, c slicelet.Change) {
	if s.mark(c); len(c.Arrived) > 0 {
		s.fetch(ctx, c)
	}
}

// mark makes requests for what has arrived wait.
func (s *Server) mark(c slicelet.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range c.Arrived {
		for _, p := range s.ranges.of(r.Slice) {
			if p.asked > c.Generation {
				continue // this server is late: a newer owner has been here
			}
			p.asked = c.Generation
			switch p.state {
			case away:
				s.setLocked(p, loading)
			case frozen: // it has come back before it was fetched
				s.setLocked(p, here)
			}
		}
	}
}

// fetch gets what has arrived from the servers that have it.
func (s *Server) fetch(ctx context.Context, c slicelet.Change) {
	for {
		tasks, known := s.others(c.Arrived)
		again := !known
		for _, task := range tasks {
			left := s.left()
			if len(left) == 0 {
				return
			}
			t, err := s.takeFrom(ctx, task, claim{c.Generation, left})
			// A task that is gone holds nothing up: what it had is lost.
			again = again || t.Busy || err != nil && s.lives(task)
		}
		if !again { // what is left is in no server's hands
			s.settle(s.left(), here, nil)
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// left is what is loading.
func (s *Server) left() (left []assignment.Slice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ranges {
		if p.state == loading {
			left = append(left, p.Slice)
		}
	}
	return left
}

// others are the tasks from which ranges come, then all others. In consistent mode the
// slicelet may own keys before it has been told of an assignment: then others are not known.
func (s *Server) others(arrived []slicelet.Range) (tasks []assignment.Task, known bool) {
	a, seen := s.slicelet.Assignment(), map[string]bool{}
	if a == nil {
		return nil, false
	}
	if i, ok := a.Position(s.slicelet.Task()); ok {
		seen[a.Task(i).Address] = true
	}
	add := func(t assignment.Task) {
		if !seen[t.Address] {
			tasks = append(tasks, t)
		}
		seen[t.Address] = true
	}
	for _, r := range arrived {
		for _, t := range r.From {
			add(t)
		}
	}
	for _, t := range a.Tasks() {
		add(t)
	}
	return tasks, true
}

// lives reports whether a task is one of the job, and not dead.
func (s *Server) lives(task assignment.Task) bool {
	a := s.slicelet.Assignment()
	if a == nil {
		return true // as far as is known
	}
	i, ok := a.Position(task.Name)
	return ok && a.Task(i).Same(task) && a.Task(i).State != assignment.TaskDead
}

// takeFrom moves what a server has of a claim here. Once that has dropped it, it is
// here and nowhere else, so an answer that is lost is asked for until it comes, or
// the server is gone.
func (s *Server) takeFrom(ctx context.Context, task assignment.Task, c claim) (t taken, err error) {
	if err = s.ask(ctx, task, "take", c, &t); err != nil {
		return t, err
	}
	s.settle(t.Late, away, nil)
	if len(t.Ranges) == 0 {
		return t, nil
	}
	var dropped []assignment.Slice
	for {
		err = s.ask(ctx, task, "drop", claim{c.Generation, t.Ranges}, &dropped)
		if err == nil || ctx.Err() != nil || !s.lives(task) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.settle(dropped, here, t.Rows)
	// What was not dropped has been asked for by a newer owner meanwhile: the next take
	// is told so.
	t.Busy = t.Busy || width(dropped) < width(t.Ranges)
	return t, err
}

func width(ranges []assignment.Slice) (n uint64) {
	for _, r := range ranges {
		n += r.Width()
	}
	return n
}

func (s *Server) ask(ctx context.Context, task assignment.Task, what string, q, a any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+task.Address+"/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.peers.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of task %s: %s", what, task.Name, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(a)
}

// settle ends the loading of ranges, with these entries among others.
func (s *Server) settle(ranges []assignment.Slice, as state, rows map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partsLocked(ranges) {
		if p.state != loading {
			continue
		}
		for key, n := range rows {
			if p.Contains(assignment.KeyOf(key)) {
				p.rows[key] = n
			}
		}
		s.setLocked(p, as)
	}
}
