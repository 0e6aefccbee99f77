package assigner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// part is the lease reader's half of a slicelet.
type part struct {
	name        string
	incarnation uint64
	cut         *cut
	reader      *lease.Reader
	job         *lease.Job
}

// cut is a way to a lease store that can be cut.
type cut struct {
	lease.Readers
	off atomic.Bool
}

var errCut = fmt.Errorf("%w: cut off", lease.ErrUnavailable)

func (c *cut) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	if c.off.Load() {
		return nil, errCut
	}
	s, err := c.Readers.OpenReader(ctx, ttl, jobs...)
	return cutSession{s, c}, err
}

type cutSession struct {
	lease.ReadSession
	c *cut
}

func (s cutSession) KeepAlive(ctx context.Context) error {
	if s.c.off.Load() {
		return errCut
	}
	return s.ReadSession.KeepAlive(ctx)
}

func (s cutSession) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	if s.c.off.Load() {
		return lease.Seen{}, false, errCut
	}
	return s.ReadSession.Acquire(ctx, job, c)
}

func (s cutSession) Release(ctx context.Context, job string, c lease.Claim) error {
	if s.c.off.Load() {
		return errCut
	}
	return s.ReadSession.Release(ctx, job, c)
}

func (s cutSession) Close(ctx context.Context) error {
	if s.c.off.Load() {
		return errCut
	}
	return s.ReadSession.Close(ctx)
}

// joinAs starts the reader of a task of "job".
func joinAs(t testing.TB, st store.Backend, readers lease.Readers, x *slicerv1.Task, ttl time.Duration, clock func() time.Duration) *part {
	t.Helper()
	p := &part{name: x.Name, incarnation: x.Incarnation, cut: &cut{Readers: readers}}
	var err error
	if p.reader, err = lease.NewReader(lease.Config{Readers: p.cut, TTL: ttl, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.leave() })
	p.job, err = p.reader.Join(lease.JobConfig{Job: "job", Task: x.Name, Incarnation: x.Incarnation,
		Fetch: func(ctx context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			return st.ReadGeneration(ctx, "job", g)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// leave ends it in an orderly way, kill without a word to the store.
func (p *part) leave() { _ = p.reader.Close() }

func (p *part) kill() {
	p.cut.off.Store(true)
	p.leave()
}

// in is the generation in which it believes whole, 0 if none.
func (p *part) in() assignment.Generation {
	before, after := p.job.Belief().Assignments()
	if before == nil || after != nil {
		return 0
	}
	return before.Generation()
}

// judge looks for keys with two owners, as long as it runs.
type judge struct {
	t    testing.TB
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	parts []*part
	looks int
	keys  int // times a key had an owner
	// overlaps are the first keys that were seen with two owners.
	overlaps []string
	expected bool
}

const judged = 128 // keys

func newJudge(t testing.TB) *judge {
	j := &judge{t: t, stop: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(j.end)
	return j
}

func (j *judge) add(ps ...*part) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parts = append(j.parts, ps...)
}

// begin looks each pause.
func (j *judge) begin(pause time.Duration) {
	go func() {
		defer close(j.done)
		for {
			select {
			case <-j.stop:
				return
			case <-time.After(pause):
				j.look()
			}
		}
	}()
}

func (j *judge) end() {
	select {
	case <-j.stop:
		return
	default:
	}
	close(j.stop)
	<-j.done
	share := 0.
	if j.looks > 0 {
		share = 100 * float64(j.keys) / float64(j.looks*judged)
	}
	if (len(j.overlaps) > 0) != j.expected {
		j.t.Errorf("overlaps: %q", j.overlaps)
	}
	j.t.Logf("%d looks at %d keys, which had an owner %.2f %% of the time", j.looks, judged, share)
}

// look asks all tasks for every key. One that says yes is asked again after another has:
// only one that owned the key before and after owned it together with that one.
func (j *judge) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.looks++
	for i := range judged {
		k := assignment.SliceKey(i)*(assignment.KeyspaceEnd/judged) + 7
		had := false
		for n, p := range j.parts {
			b := p.job.Belief()
			if !b.Owns(k) {
				continue
			}
			had = true
			for m, o := range j.parts {
				if m != n && o.job.Owns(k) && b.Owns(k) && p.job.Belief() == b {
					j.overlaps = append(j.overlaps[:min(len(j.overlaps), 8)], fmt.Sprintf("key %s is owned by %s/%d and %s/%d", k, p.name, p.incarnation, o.name, o.incarnation))
				}
			}
		}
		if had {
			j.keys++
		}
	}
}

// consistentJob is the config of most tests.
func consistentJob() *slicerv1.JobConfig {
	return &slicerv1.JobConfig{Name: "job", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: 1000,
		Balance: &slicerv1.BalanceConfig{MinSlicesPerTask: 10, IntervalMs: 200}}
}

// eventually waits for a condition that time or others bring about.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	waittest.Eventually(t, waittest.Patience, what, f)
}
