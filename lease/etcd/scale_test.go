//go:build system

package etcdlease_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
)

// counted counts the keepalives of all sessions.
type counted struct {
	lease.Readers
	keepalives atomic.Int64
}

func (c *counted) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	s, err := c.Readers.OpenReader(ctx, ttl, jobs...)
	return &countedSession{s, c}, err
}

type countedSession struct {
	lease.ReadSession
	c *counted
}

func (s *countedSession) KeepAlive(ctx context.Context) error {
	s.c.keepalives.Add(1)
	return s.ReadSession.KeepAlive(ctx)
}

// crowd is many readers of one job, and an assigner.
type crowd struct {
	t       *testing.T
	store   *counted
	w       lease.WriteSession
	token   lease.Token
	readers []*lease.Reader
	jobs    []*lease.Job
	mu      sync.Mutex
	cache   map[assignment.Generation]*assignment.Assignment
}

func newCrowd(t *testing.T, n int) *crowd {
	st := open(t)
	c := &crowd{t: t, store: &counted{Readers: st}, cache: map[assignment.Generation]*assignment.Assignment{}}
	var err error
	if c.w, err = st.OpenWriter(t.Context(), lease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	if c.token, err = c.w.Lead(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r, err := lease.NewReader(lease.Config{Readers: c.store, TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		j, err := r.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(i), Incarnation: leasetest.Incarnation(i),
			Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) { return c.fetch(g) }})
		if err != nil {
			t.Fatal(err)
		}
		c.readers, c.jobs = append(c.readers, r), append(c.jobs, j)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, r := range c.readers {
			wg.Go(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	return c
}

func (c *crowd) fetch(g assignment.Generation) (*assignment.Assignment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache[g] == nil {
		a, err := leasetest.Assignment("job", g, min(len(c.jobs), 50))
		if err != nil {
			return nil, err
		}
		c.cache[g] = a
	}
	return c.cache[g], nil
}

// advance carries the job to g and waits until all believe; it returns how long
// the change took, all told, and from the recall to the new guard.
func (c *crowd) advance(g assignment.Generation) (change, recall time.Duration) {
	c.t.Helper()
	start := time.Now()
	_, err := lease.Advance(c.t.Context(), c.w, lease.Change{Job: "job", Token: c.token, Wanted: g, Wait: 10 * time.Second,
		Observe: func(s lease.Step, _ lease.State, took time.Duration) {
			if s.Kind == lease.Rewrite {
				recall = took
			}
		}})
	if err != nil {
		c.t.Fatal(err)
	}
	change = time.Since(start)
	for _, j := range c.jobs {
		for {
			if before, after := j.Belief().Assignments(); before != nil && after == nil && before.Generation() == g {
				break
			}
			if time.Since(start) > time.Minute {
				c.t.Fatalf("not all believe in generation %d a minute after", g)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return change, recall
}

// Two thousand slicelets, each with a lease of its own, on one etcd.
func TestTwoThousandReaders(t *testing.T) {
	c := newCrowd(t, 2000)
	first, _ := c.advance(1)
	n, used := c.store.keepalives.Load(), cputest.Own()
	const window = 10 * time.Second
	time.Sleep(window)
	n, used = c.store.keepalives.Load()-n, cputest.Own()-used
	t.Logf("2000 readers believed %s after the job began; %.0f keepalives/s, %.0f %% of one core for etcd, readers and all (%d cores)",
		first.Round(time.Millisecond), float64(n)/window.Seconds(), 100*used.Seconds()/window.Seconds(), runtime.NumCPU())
	change, recall := c.advance(2)
	t.Logf("a change took %s, of it %s from recall to the new guard", change.Round(time.Millisecond), recall.Round(time.Millisecond))
}

// How long a recall lasts when all readers live.
func TestRecall(t *testing.T) {
	c := newCrowd(t, 50)
	c.advance(1)
	var recalls []time.Duration
	for g := range assignment.Generation(100) {
		_, recall := c.advance(g + 2)
		recalls = append(recalls, recall)
	}
	slices.Sort(recalls)
	t.Logf("recall of 50 readers, %d changes: median %s, 99th percentile %s, longest %s", len(recalls), recalls[50], recalls[98], recalls[99])
}
