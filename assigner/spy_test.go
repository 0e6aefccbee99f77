package assigner

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// spy is a lease store that notes what comes in force, across all assigners that
// use it, and whose writers can be made to die between two steps.
type spy struct {
	lease.Writers
	t testing.TB

	mu       sync.Mutex
	sessions []*spied
	guards   []assignment.Generation          // in force, in order
	force    map[string]assignment.Generation // by job
	steps    int
	dieAfter int // so many steps; 0 is never
	taken    map[lease.Kind]int
	recalled time.Time
	recalls  []time.Duration // from the recall to the new guard
}

func newSpy(t testing.TB, w lease.Writers) *spy {
	return &spy{Writers: w, t: t, taken: map[lease.Kind]int{}, force: map[string]assignment.Generation{}}
}

func (s *spy) OpenWriter(ctx context.Context, ttl time.Duration) (lease.WriteSession, error) {
	w, err := s.Writers.OpenWriter(ctx, ttl)
	if err != nil {
		return nil, err
	}
	n := &spied{WriteSession: w, spy: s}
	s.mu.Lock()
	s.sessions = append(s.sessions, n)
	s.mu.Unlock()
	return n, nil
}

// newest is the session that was opened last, nil if there is none.
func (s *spy) newest() *spied {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		return nil
	}
	return s.sessions[len(s.sessions)-1]
}

// inForce is the generation of the guard.
func (s *spy) inForce() assignment.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.guards) == 0 {
		return 0
	}
	return s.guards[len(s.guards)-1]
}

// did is the steps so far by kind, and the generations that came in force.
func (s *spy) did() (steps map[lease.Kind]int, inForce int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.taken), len(s.guards)
}

// committed notes a step. Commits of several sessions may be noted in another
// order than that in which they were carried out, but only by a moment, and each
// guard generation once: so this looks at those of one session alone, and at the
// end at all of them.
func (s *spy) committed(job string, st lease.Step, read lease.State) (die bool) {
	o, err := st.Outcome(read.Records)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[st.Kind]++
	switch st.Kind {
	case lease.Recall:
		s.recalled = time.Now()
	case lease.Rewrite:
		s.recalls = append(s.recalls, time.Since(s.recalled))
	}
	if st.Kind == lease.Rewrite || st.Kind == lease.Boot {
		g := o.Guard.Generation
		if was := s.force[job]; g <= was {
			s.t.Errorf("generation %d of job %s comes in force after %d", g, job, was)
		}
		s.force[job] = g
		s.guards = append(s.guards, g)
	}
	s.steps++
	return s.steps == s.dieAfter
}

// spied is a session under observation.
type spied struct {
	lease.WriteSession
	spy  *spy
	mu   sync.Mutex
	dead bool
}

func (n *spied) alive() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return errCut
	}
	return nil
}

func (n *spied) die() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
}

func (n *spied) KeepAlive(ctx context.Context) error {
	if err := n.alive(); err != nil {
		return err
	}
	return n.WriteSession.KeepAlive(ctx)
}

func (n *spied) Close(ctx context.Context) error {
	if err := n.alive(); err != nil {
		return err
	}
	return n.WriteSession.Close(ctx)
}

func (n *spied) Lead(ctx context.Context, job string) (lease.Token, error) {
	if err := n.alive(); err != nil {
		return 0, err
	}
	return n.WriteSession.Lead(ctx, job)
}

func (n *spied) Resign(ctx context.Context, job string, t lease.Token) error {
	if err := n.alive(); err != nil {
		return err
	}
	return n.WriteSession.Resign(ctx, job, t)
}

func (n *spied) Commit(ctx context.Context, job string, t lease.Token, read lease.State, s lease.Step) error {
	if err := n.alive(); err != nil {
		return err
	}
	err := n.WriteSession.Commit(ctx, job, t, read, s)
	if err == nil && n.spy.committed(job, s, read) {
		n.die()
		return errCut // it dies before it hears of it
	}
	return err
}
