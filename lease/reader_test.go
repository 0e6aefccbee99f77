package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/leasetest"
	"github.com/slicer-project/slicer/lease/serve"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type storage struct {
	mu      sync.Mutex
	records map[string][]byte
}

func (m *storage) Load(context.Context) (map[string][]byte, error) { return maps.Clone(m.records), nil }

func (m *storage) Put(_ context.Context, records map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string][]byte{}
	}
	maps.Copy(m.records, records)
	return nil
}

// cut makes a store that can be cut off from its readers, or carries out late what
// they ask for, long after they have given it up.
type cut struct {
	lease.Readers
	off, slow atomic.Bool
	mu        sync.Mutex
	late      []func(ctx context.Context)
}

// wait takes in what is carried out late.
func (c *cut) wait(do func(ctx context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, do)
	return fmt.Errorf("%w: no answer", lease.ErrUnavailable)
}

// arrive carries it out.
func (c *cut) arrive(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, do := range c.late {
		do(ctx)
	}
	c.late = nil
}

var errCut = fmt.Errorf("%w: cut off", lease.ErrUnavailable)

func (c *cut) OpenReader(ctx context.Context, ttl time.Duration, jobs ...string) (lease.ReadSession, error) {
	if c.off.Load() {
		return nil, errCut
	}
	s, err := c.Readers.OpenReader(ctx, ttl, jobs...)
	return &cutSession{s, c}, err
}

type cutSession struct {
	lease.ReadSession
	c *cut
}

func (s *cutSession) KeepAlive(ctx context.Context) error {
	if s.c.off.Load() {
		return errCut
	}
	return s.ReadSession.KeepAlive(ctx)
}

func (s *cutSession) Acquire(ctx context.Context, job string, c lease.Claim) (lease.Seen, bool, error) {
	if s.c.off.Load() {
		return lease.Seen{}, false, errCut
	}
	if s.c.slow.Load() {
		return lease.Seen{}, false, s.c.wait(func(ctx context.Context) { _, _, _ = s.ReadSession.Acquire(ctx, job, c) })
	}
	return s.ReadSession.Acquire(ctx, job, c)
}

func (s *cutSession) Release(ctx context.Context, job string, c lease.Claim) error {
	if s.c.off.Load() {
		return errCut
	}
	if s.c.slow.Load() {
		return s.c.wait(func(ctx context.Context) { _ = s.ReadSession.Release(ctx, job, c) })
	}
	return s.ReadSession.Release(ctx, job, c)
}

// world is a store, an assigner and a reader in virtual time.
type world struct {
	t      *testing.T
	start  time.Time
	store  *serve.Store
	w      lease.WriteSession
	token  lease.Token
	cut    *cut
	skew   atomic.Int64 // by which the reader's clock is ahead
	reader *lease.Reader
	job    *lease.Job
	mu     sync.Mutex
	told   []string
	lost   atomic.Int64 // the generation that cannot be fetched
}

const ttl = 5 * time.Second

func newWorld(t *testing.T) *world {
	return newWorldOf(t, func(r lease.Readers) lease.Readers { return r })
}

// newWorldOf puts something between the reader and the store.
func newWorldOf(t *testing.T, between func(lease.Readers) lease.Readers) *world {
	v := &world{t: t, start: time.Now()}
	clock := func() time.Duration { return time.Since(v.start) }
	var err error
	if v.store, err = serve.Open(t.Context(), serve.Config{Storage: &storage{}, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	if v.w, err = v.store.OpenWriter(t.Context(), lease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	if v.token, err = v.w.Lead(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	v.cut = &cut{Readers: v.store}
	v.reader, err = lease.NewReader(lease.Config{Readers: between(v.cut), TTL: ttl, Clock: func() time.Duration { return clock() + time.Duration(v.skew.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	v.job, err = v.reader.Join(lease.JobConfig{Job: "job", Task: leasetest.TaskName(0), Incarnation: leasetest.Incarnation(0),
		Fetch: func(_ context.Context, g assignment.Generation) (*assignment.Assignment, error) {
			if int64(g) == v.lost.Load() {
				return nil, errors.New("none has it")
			}
			return leasetest.Assignment("job", g, 2)
		},
		Changed: func(b *lease.Belief) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.told = append(v.told, belief(b))
		}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func belief(b *lease.Belief) string {
	before, after := b.Assignments()
	switch {
	case before == nil:
		return "nothing"
	case after == nil:
		return fmt.Sprint("guard ", before.Generation())
	}
	return fmt.Sprint("bridge ", before.Generation(), "-", after.Generation())
}

func (v *world) close() {
	if err := v.reader.Close(); err != nil {
		v.t.Errorf("Close: %v", err)
	}
	v.store.Close()
}

func (v *world) advance(g assignment.Generation) {
	v.t.Helper()
	if _, err := lease.Advance(v.t.Context(), v.w, lease.Change{Job: "job", Token: v.token, Wanted: g, Wait: time.Second}); err != nil {
		v.t.Fatal(err)
	}
}

func (v *world) wantTold(want ...string) {
	v.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.Join(v.told, ", ") != strings.Join(want, ", ") {
		v.t.Errorf("the listener was told %q, want %q", v.told, want)
	}
	v.told = nil
}

func TestReaderFollowsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		time.Sleep(time.Minute) // the lease is renewed
		v.advance(2)
		v.wantTold("bridge 1-2", "guard 2")
		v.close()
		v.wantTold("nothing")
		if st, err := v.w.State(context.Background(), "job"); err == nil && st.GuardReaders != 0 {
			t.Errorf("after Close the guard has %d readers", st.GuardReaders)
		}
	})
}

// A process that is stopped for longer than its lease believes in nothing from
// its first instruction on, whatever its goroutines have not yet got round to.
func TestStoppedProcessBelievesInNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		synctest.Wait()
		a, _ := leasetest.Assignment("job", 1, 2)
		var mine assignment.SliceKey
		for s, r := range a.All() {
			if r.At(0).Name == leasetest.TaskName(0) {
				mine = s.Start
				break
			}
		}
		held := v.job.Belief()
		if !held.Owns(mine) || !v.job.Owns(mine) {
			t.Fatal("it does not believe in its key")
		}
		v.skew.Store(int64(ttl)) // no goroutine runs between this and the questions
		if held.Valid() || held.Owns(mine) || v.job.Owns(mine) || v.job.Belief() != nil {
			t.Error("it believes in its key past its deadline")
		}
		v.skew.Store(0)
		v.close()
	})
}

func TestLostLeaseIsToldBeforeItCanBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		v.cut.off.Store(true)
		start := time.Now()
		v.advance(2) // waits for the reader's lease to run out
		took := time.Since(start)
		v.wantTold("nothing")
		if took < ttl/2 || took > ttl+time.Second {
			t.Errorf("a reader that is cut off has held up the change for %s, the lease time is %s", took, ttl)
		}
		v.cut.off.Store(false)
		time.Sleep(ttl)
		v.wantTold("guard 2")
		v.close()
	})
}

// The deadline passes and the store is reached again before the lease is over: belief
// goes on, since no other task can have had it.
func TestLateKeepAliveRevives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		v.cut.off.Store(true)
		for v.job.Belief() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		v.cut.off.Store(false)
		time.Sleep(time.Second)
		v.wantTold("nothing", "guard 1")
		v.close()
	})
}

func TestAssignmentNotToBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		v.lost.Store(2)
		start := time.Now()
		v.advance(2)
		if took := time.Since(start); took > time.Second+ttl+time.Second {
			t.Errorf("it has held up the change for %s", took)
		}
		v.wantTold("nothing")
		v.lost.Store(0)
		time.Sleep(time.Second)
		v.wantTold("guard 2")
		v.close()
	})
}

func TestLeavingAJobReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWorld(t)
		v.advance(1)
		v.wantTold("guard 1")
		if err := v.job.Close(); err != nil {
			t.Error(err)
		}
		v.wantTold("nothing")
		if st, err := v.w.State(t.Context(), "job"); err != nil || st.GuardReaders != 0 {
			t.Errorf("after Close the guard has %d readers, %v", st.GuardReaders, err)
		}
		v.close()
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []lease.Config{
		{},
		{Readers: &cut{}, TTL: time.Millisecond},
		{Readers: &cut{}, Margin: time.Millisecond},
		{Readers: &cut{}, Margin: 3 * time.Second},
		{Readers: &cut{}, Patience: -1},
	} {
		if r, err := lease.NewReader(c); err == nil {
			t.Errorf("%+v was accepted", c)
			r.Close()
		}
	}
	unreachable := &cut{}
	unreachable.off.Store(true)
	r, err := lease.NewReader(lease.Config{Readers: unreachable, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, c := range []lease.JobConfig{{}, {Job: "a/b"}, {Job: "a"}, {Job: "a", Task: "b"}, {Job: "a", Task: "b", Incarnation: 1}} {
		if _, err := r.Join(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestMetricsAreShared(t *testing.T) {
	reg := prometheus.NewRegistry()
	for range 2 {
		unreachable := &cut{}
		unreachable.off.Store(true)
		r, err := lease.NewReader(lease.Config{Readers: unreachable, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	if n, err := testutil.GatherAndCount(reg, "slicer_lease_sessions_total"); n != 1 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestBelief(t *testing.T) {
	var none *lease.Belief
	if none.Valid() || none.Owns(0) || none.Slices() != nil {
		t.Error("no belief believes in something")
	}
}
