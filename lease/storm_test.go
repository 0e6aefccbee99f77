package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
)

const (
	stormTasks  = 4
	stormSlices = 32
	stormTTL    = time.Second
)

// storm is real readers, in virtual time, among processes that die and are cut off.
type storm struct {
	t      *testing.T
	store  *serve.Store
	clock  func() time.Duration
	seen   func() time.Duration // the clock as readers see it
	stands bool                 // it stands still for them
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	calm    bool
	last    bool // no assignment follows: the newest knows all incarnations
	procs   [stormTasks]*proc
	births  uint64
	owners  [stormSlices]uint32
	written map[assignment.Generation]*assignment.Assignment
	newest  assignment.Generation
	changes int
}

// proc is one incarnation of a task.
type proc struct {
	incarnation uint64
	cut         *cut
	reader      *lease.Reader
	job         *lease.Job
}

func (s *storm) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// begin starts a task's next incarnation.
func (s *storm) begin(i int) {
	s.births++
	p := &proc{incarnation: s.births, cut: &cut{Readers: s.store}}
	var err error
	p.reader, err = lease.NewReader(lease.Config{Readers: p.cut, TTL: stormTTL, Clock: s.seen})
	if err != nil {
		s.t.Fatal(err)
	}
	s.join(p, i)
	s.procs[i] = p
}

// join has a process take part in the job.
func (s *storm) join(p *proc, i int) {
	var err error
	p.job, err = p.reader.Join(lease.JobConfig{Job: "job", Task: fmt.Sprintf("task-%d", i), Incarnation: p.incarnation,
		Fetch: func(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			if s.roll(8) == 0 {
				time.Sleep(time.Duration(s.roll(500)) * time.Millisecond)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if a := s.written[g]; a != nil {
				return a, ctx.Err()
			}
			return nil, errors.New("not to be had")
		}})
	if err != nil {
		s.t.Fatal(err)
	}
}

// rejoin has a process leave the job and take part in it again, as another incarnation.
func (s *storm) rejoin(p *proc, i int) {
	_ = p.job.Close() // what cannot be released is released later
	s.mu.Lock()
	defer s.mu.Unlock()
	s.births++
	p.incarnation = s.births
	s.join(p, i)
}

// kill ends a process as kill -9 does: its session stays until it runs out.
func (s *storm) kill(p *proc) {
	p.cut.off.Store(true)
	_ = p.reader.Close() // cannot give the session back
}

// decide writes the next assignment, of the tasks as they live now.
func (s *storm) decide() assignment.Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last {
		return s.newest
	}
	s.last = s.calm
	tasks := make([]assignment.Task, stormTasks)
	for i, p := range s.procs {
		tasks[i] = assignment.Task{Name: fmt.Sprintf("task-%d", i), Incarnation: p.incarnation, Address: "127.0.0.1:1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning}
	}
	c := assignment.Columns{}
	for i := range s.owners {
		if s.rng.IntN(6) == 0 {
			s.owners[i] = uint32(s.rng.IntN(stormTasks))
		}
		c.Starts = append(c.Starts, assignment.SliceKey(i)*(assignment.KeyspaceEnd/stormSlices))
		c.Owners = append(c.Owners, s.owners[i])
	}
	a, err := assignment.New(assignment.Header{Job: "job", StoreID: 1, Generation: s.newest + 1, Previous: s.newest}, tasks, c)
	if err != nil {
		s.t.Error(err)
		return s.newest
	}
	s.newest++
	s.written[s.newest] = a
	return s.newest
}

// assigner leads for a while, dies in the middle of something, and starts again.
func (s *storm) assigner() {
	for s.ctx.Err() == nil {
		time.Sleep(time.Duration(s.roll(200)) * time.Millisecond)
		w, err := s.store.OpenWriter(s.ctx, stormTTL)
		if err != nil {
			continue
		}
		life, cancel := context.WithTimeout(s.ctx, time.Duration(1+s.roll(6000))*time.Millisecond)
		var alive sync.WaitGroup
		alive.Go(func() {
			for w.KeepAlive(life) == nil && life.Err() == nil {
				time.Sleep(stormTTL / 4)
			}
		})
		for life.Err() == nil {
			token, err := w.Lead(life, "job")
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			wanted := s.decide()
			for life.Err() == nil {
				_, err = lease.Advance(life, w, lease.Change{Job: "job", Token: token, Wanted: wanted, Wait: 300 * time.Millisecond})
				if err != nil {
					break
				}
				s.mu.Lock()
				s.changes++
				s.mu.Unlock()
				time.Sleep(time.Duration(s.roll(400)) * time.Millisecond)
				if s.calmly() {
					time.Sleep(stormTTL)
					continue
				}
				wanted = s.decide()
			}
		}
		cancel()
		alive.Wait()
	}
}

func (s *storm) calmly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

// look asks every task for every key, at one instant.
func (s *storm) look() (believed int, overlap string) {
	for i := range stormSlices {
		k := assignment.SliceKey(i) * (assignment.KeyspaceEnd / stormSlices)
		owner := -1
		for n, p := range s.procs {
			if !p.job.Owns(k) {
				continue
			}
			if owner >= 0 {
				overlap = fmt.Sprintf("at %s slice %d is owned by tasks %d (%s) and %d (%s)", s.clock(), i, owner, belief(s.procs[owner].job.Belief()), n, belief(p.job.Belief()))
			}
			owner = n
			believed++
		}
	}
	return believed, overlap
}

func TestStorm(t *testing.T) {
	if overlap := weather(t, seedtest.Seed(t), false); overlap != "" {
		t.Error(overlap)
	}
}

// Readers whose clock stands still never find their deadline past.
func TestStormSeesAMissingDeadline(t *testing.T) {
	seed := seedtest.Seed(t)
	for i := range uint64(20) {
		if overlap := weather(t, seed+i, true); overlap != "" {
			t.Log(overlap)
			return
		}
	}
	t.Error("readers did not look at their deadline, and that went unnoticed")
}

// weather runs a storm, and returns the first overlap that it sees. Goroutines run
// as they like, whatever the seed.
func weather(t *testing.T, seed uint64, noDeadline bool) (overlap string) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &storm{t: t, rng: rand.New(rand.NewPCG(seed, 7)), written: map[assignment.Generation]*assignment.Assignment{},
			clock: func() time.Duration { return time.Since(start) }}
		s.seen = s.clock
		if noDeadline {
			s.stands = true
			s.seen = func() time.Duration { return 0 }
		}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		var err error
		if s.store, err = serve.Open(t.Context(), serve.Config{Storage: &storage{}, Clock: s.clock}); err != nil {
			t.Fatal(err)
		}
		for i := range stormTasks {
			s.begin(i)
		}
		for range 2 {
			s.wg.Go(s.assigner)
		}
		believed := 0
		const looks = 12000
		for range looks {
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
			var n int
			if n, overlap = s.look(); overlap != "" {
				break
			}
			believed += n
			s.trouble()
		}
		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		for _, p := range s.procs {
			p.cut.off.Store(false)
		}
		time.Sleep(20 * stormTTL)
		synctest.Wait()
		for i, p := range s.procs {
			if got, want := belief(p.job.Belief()), fmt.Sprint("guard ", s.newest); got != want && !noDeadline {
				t.Errorf("after the storm task %d believes in %s, want %s", i, got, want)
			}
		}
		s.cancel()
		s.wg.Wait()
		for _, p := range s.procs {
			if err := p.reader.Close(); err != nil {
				t.Error(err)
			}
		}
		s.store.Close()
		t.Logf("%d changes, %d incarnations of %d tasks; keys had an owner %.1f %% of the time", s.changes, s.births, stormTasks,
			100*float64(believed)/float64(looks*stormSlices))
	})
	return overlap
}

// trouble cuts a task off, or reaches it again, or kills it, or makes it leave and come back.
func (s *storm) trouble() {
	p := s.roll(stormTasks)
	switch s.roll(400) {
	case 0, 1:
		s.procs[p].cut.off.Store(true)
	case 2, 3, 4, 5:
		s.procs[p].cut.off.Store(false)
	case 6:
		s.kill(s.procs[p])
		s.mu.Lock()
		s.begin(p)
		s.mu.Unlock()
	case 7, 8:
		if !s.stands { // or else Close would wait for ever
			s.rejoin(s.procs[p], p)
		}
	}
}
