package consistent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

const (
	tasks  = 3
	points = 16
	// patience is how long to wait for what must happen at all.
	patience = waittest.Patience

	distributor = "10.0.0.1:1"
)

// job is slicelets of one job, and what the assigner knows.
type job struct {
	t      *testing.T
	net    *subscribertest.Network
	server *subscribertest.Server
	w      lease.WriteSession
	token  lease.Token
	procs  []*proc
	tasks  []assignment.Task
	keys   [points]string
	owners [points]uint32
	last   *assignment.Assignment
}

// proc is a process: a slicelet with a lease of its own.
type proc struct {
	s      *slicelet.Slicelet
	reader *lease.Reader
	mu     sync.Mutex
	told   [points]bool // what the listener has
}

func (p *proc) SlicesChanged(_ context.Context, c slicelet.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range assignment.Equal(points) {
		in := func(r slicelet.Range) bool { return r.Contains(k) }
		p.told[i] = p.told[i] && !slices.ContainsFunc(c.Departed, in) || slices.ContainsFunc(c.Arrived, in)
	}
}

func (p *proc) holdsNothing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.Contains(p.told[:], true) && len(p.s.Slices()) == 0
}

func start(t *testing.T, st store, ttl time.Duration) *job {
	j := &job{t: t}
	n := subscribertest.NewNetwork()
	j.net = n
	j.server = n.Start(distributor)
	t.Cleanup(j.server.Stop)
	j.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_CONSISTENT})
	var err error
	if j.w, err = st.writers.OpenWriter(t.Context(), lease.MaxTTL); err != nil {
		t.Fatal(err)
	}
	if j.token, err = j.w.Lead(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		p := &proc{}
		if p.reader, err = lease.NewReader(lease.Config{Readers: st.readers(t), TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		p.s, err = slicelet.New(slicelet.Config{Job: "job", Task: fmt.Sprint("task-", i), Address: fmt.Sprintf("10.9.0.%d:80", i),
			Distributors: []string{distributor}, DialOptions: n.DialOptions(), Leases: p.reader})
		if err != nil {
			t.Fatal(err)
		}
		p.s.Listen(p)
		j.procs = append(j.procs, p)
	}
	for p, s := range assignment.Equal(points) {
		for i := 0; j.keys[p] == ""; i++ {
			if k := fmt.Sprint("key", i); (assignment.Slice{Start: s, End: s + assignment.KeyspaceEnd/points}).Contains(assignment.KeyOf(k)) {
				j.keys[p] = k
			}
		}
	}
	j.eventually("every task says hello", func() bool { return j.hellos() == tasks })
	return j
}

// hellos reads who the tasks are.
func (j *job) hellos() int {
	j.tasks = make([]assignment.Task, tasks)
	n := 0
	for _, m := range j.server.Heard() {
		if h := m.GetHello(); h != nil {
			task, err := wire.TaskFromProto(h.GetTask())
			if err != nil {
				j.t.Fatal(err)
			}
			_, _ = fmt.Sscanf(task.Name, "task-%d", &task.Index)
			j.tasks[task.Index] = task
			n++
		}
	}
	return n
}

func (j *job) eventually(what string, ok func() bool) {
	j.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > patience {
			j.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// change writes an assignment, distributes it and carries the job to it.
func (j *job) change() {
	j.t.Helper()
	g := assignment.Generation(1)
	if j.last != nil {
		g = j.last.Generation() + 1
	}
	j.last = subscribertest.Equal(j.t, j.last, assignment.Header{Job: "job", StoreID: 1, Generation: g}, slices.Clone(j.tasks), slices.Clone(j.owners[:])...)
	j.server.Put(j.last)
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	if _, err := lease.Advance(ctx, j.w, lease.Change{Job: "job", Token: j.token, Wanted: g, Wait: patience}); err != nil {
		j.t.Fatal(err)
	}
	j.eventually("every task owns what is assigned", func() bool {
		for p, key := range j.keys {
			if !j.procs[j.owners[p]].s.IsAffinitized(key) {
				return false
			}
		}
		return true
	})
}

func (j *job) stop() {
	for _, p := range j.procs {
		if err := errors.Join(p.s.Close(), p.reader.Close()); err != nil {
			j.t.Error(err)
		}
	}
}

// abandon is stop when the lease store is gone: nothing can be given back.
func (j *job) abandon() {
	var wg sync.WaitGroup
	for _, p := range j.procs {
		wg.Go(func() { _ = errors.Join(p.s.Close(), p.reader.Close()) })
	}
	wg.Wait()
}

// watch looks for a key that two own at once, and for tokens that do not grow,
// until stop is closed.
func (j *job) watch(stop <-chan struct{}) {
	type seen struct {
		who   int
		token assignment.Generation
	}
	var before [points]seen
	for {
		for p, key := range j.keys {
			var owned []slicelet.Handle
			for i, proc := range j.procs {
				h := proc.s.Handle(key)
				if !h.Owned() {
					continue
				}
				// A task that was the owner before, and still is, was so when this one
				// was too.
				for _, other := range owned {
					if other.AssignedContinuously() {
						j.t.Errorf("%s has two owners", key)
					}
				}
				owned = append(owned, h)
				if was := before[p]; h.FencingToken() < was.token || h.FencingToken() == was.token && was.who != i {
					j.t.Errorf("%s: %d owns it with token %d after %d with %d", key, i, h.FencingToken(), was.who, was.token)
				}
				before[p] = seen{i, h.FencingToken()}
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Microsecond):
		}
	}
}

func TestKeysMove(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			j := start(t, open(t), lease.MaxTTL) // so that a slow machine loses none
			defer j.stop()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { j.watch(stop) })
			defer wg.Wait()
			defer close(stop)
			for p := range j.owners {
				j.owners[p] = uint32(p % tasks)
			}
			j.change()
			for range 15 {
				before := j.owners
				var handles [points]slicelet.Handle
				for p, key := range j.keys {
					handles[p] = j.procs[j.owners[p]].s.Handle(key)
				}
				for range 3 {
					j.owners[rand.IntN(points)] = rand.Uint32N(tasks)
				}
				j.change()
				for p, h := range handles {
					if stays := before[p] == j.owners[p]; h.AssignedContinuously() != stays {
						t.Errorf("%s goes from %d to %d, and its handle is valid: %t", j.keys[p], before[p], j.owners[p], !stays)
					}
				}
			}
		})
	}
}

// The lease store is gone: every task finds that nothing is its own, and the listeners
// know.
func TestStoreStops(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			st := open(t)
			j := start(t, st, lease.MinTTL)
			j.change()
			h := j.procs[0].s.Handle(j.keys[0])
			st.kill()
			for _, p := range j.procs {
				j.eventually("nothing is owned", p.holdsNothing)
			}
			if !h.Owned() || h.AssignedContinuously() {
				t.Error("a handle has outlived the lease store")
			}
			j.abandon()
		})
	}
}
