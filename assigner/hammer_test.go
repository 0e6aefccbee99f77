package assigner

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

var hammerFor = flag.Duration("hammer", 2*time.Second, "how long two assigners fight over a job in TestHammer")

// proposals notes what assigners try to write.
type proposals struct {
	mu   sync.Mutex
	sums map[assignment.Generation][]uint64
	by   map[string]int // stored, by assigner
}

type proposing struct {
	store.Backend
	who string
	p   *proposals
}

func (s proposing) Commit(ctx context.Context, c store.Commit) error {
	next := c.Next
	s.p.mu.Lock()
	s.p.sums[next.Generation()] = append(s.p.sums[next.Generation()], next.Checksum())
	s.p.mu.Unlock()
	err := s.Backend.Commit(ctx, c)
	if err == nil {
		s.p.mu.Lock()
		s.p.by[s.who]++
		s.p.mu.Unlock()
	}
	return err
}

// TestHammer has two assigners that both believe they are preferred change one
// job as often as they can, each for other tasks, and looks at all that is
// stored: generations strictly increase, each was proposed whole by one of them
// and follows the one before, and none is lost.
func TestHammer(t *testing.T) {
	t.Parallel()
	backends := map[string]func(t *testing.T) (a, b, observer store.Backend){
		"pebble": func(t *testing.T) (a, b, observer store.Backend) {
			st := openPebble(t)
			return st, st, st
		},
		"etcd": func(t *testing.T) (a, b, observer store.Backend) {
			prefix := etcdtest.Prefix(t)
			open := func() store.Backend {
				st, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: etcdtest.Start(t), Prefix: prefix, Keep: keepAll, RequestTimeout: waittest.Patience})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { st.Close() })
				return st
			}
			return open(), open(), open()
		},
	}
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, observer := open(t)
			hammer(t, a, b, observer)
		})
	}
}

func hammer(t *testing.T, backendA, backendB, observer store.Backend) {
	p := &proposals{sums: map[assignment.Generation][]uint64{}, by: map[string]int{}}
	x := start(t, Config{ID: "x", Stores: []NamedStore{{Backend: proposing{backendA, "x", p}}}, alwaysPreferred: true})
	y := start(t, Config{ID: "y", Stores: []NamedStore{{Backend: proposing{backendB, "y", p}}}, alwaysPreferred: true})
	x.put(&slicerv1.JobConfig{Name: "job", Balance: &slicerv1.BalanceConfig{MinSlicesPerTask: 10, IntervalMs: 100}})

	ctx, stop := context.WithCancel(t.Context())
	seen := make(chan []*assignment.Assignment)
	go func() { seen <- follow(ctx, t, observer, "job") }()

	// Each is told of its own tasks. One of them restarts again and again, at both
	// at the same moment, so that both have to act at once.
	nodes := []*node{x, y}
	var ds []*raw
	tasks := func(n *node, round int) (all []*slicerv1.Task) {
		for k := range 4 {
			incarnation := uint64(1)
			if k == 0 {
				incarnation += uint64(round)
			}
			all = append(all, task(fmt.Sprintf("%s%d", n.cfg.ID, k), incarnation))
		}
		return all
	}
	for i, n := range nodes {
		d := n.attach(fmt.Sprintf("d%d", i))
		d.preferred("job", n.cfg.ID)
		d.want(&slicerv1.Want{Job: "job"})
		d.reports("job", true, tasks(n, 0)...)
		ds = append(ds, d)
	}
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for round, began := 1, time.Now(); ; round++ {
		<-tick.C
		// On a machine without time for it, one may be the quicker for long.
		if took := time.Since(began); took > *hammerFor && (p.both() || took > *hammerFor+waittest.Patience) {
			break
		}
		for i, n := range nodes {
			ds[i].gone("job", tasks(n, round-1)[0])
			ds[i].reports("job", false, tasks(n, round)...)
		}
	}
	x.stop()
	y.stop()
	final, err := observer.Read(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	check(t, p, <-seen, final, observer)
}

// both reports whether each has stored something.
func (p *proposals) both() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by["x"] > 0 && p.by["y"] > 0
}

// follow reads the job whenever it has changed, and returns what it saw.
func follow(ctx context.Context, t *testing.T, st store.Backend, job string) (all []*assignment.Assignment) {
	w, err := st.Watch(ctx)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer w.Close()
	for {
		if _, err := w.Next(ctx); err != nil {
			return all
		}
		if a, err := st.Read(ctx, job); err == nil && (len(all) == 0 || all[len(all)-1].Generation() != a.Generation()) {
			all = append(all, a)
		}
	}
}

func check(t *testing.T, p *proposals, seen []*assignment.Assignment, final *assignment.Assignment, st store.Backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := func(a *assignment.Assignment) {
		if !slices.Contains(p.sums[a.Generation()], a.Checksum()) {
			t.Errorf("generation %d is stored, but was not proposed whole", a.Generation())
		}
	}
	for i, a := range seen {
		whole(a)
		if i > 0 && a.Generation() <= seen[i-1].Generation() {
			t.Errorf("generation %d was seen after %d", a.Generation(), seen[i-1].Generation())
		}
	}
	whole(final)
	// Back along the chain, as far as the store keeps it.
	chain := 1
	for a := final; a.Previous() != 0; chain++ {
		prev, err := st.ReadGeneration(t.Context(), "job", a.Previous())
		if err != nil {
			break
		}
		whole(prev)
		if prev.Generation() >= a.Generation() {
			t.Errorf("generation %d follows %d", a.Generation(), prev.Generation())
		}
		a = prev
	}
	stored, conflicts := 0, -p.by["x"]-p.by["y"]
	for _, n := range p.by {
		stored += n
	}
	for _, s := range p.sums {
		conflicts += len(s)
	}
	t.Logf("%d generations stored (%v), %d proposals lost, %d seen live, chain of %d checked", stored, p.by, conflicts, len(seen), chain)
	if p.by["x"] == 0 || p.by["y"] == 0 {
		t.Errorf("one of them never got through: %v", p.by)
	}
	// While everything is kept, what was acknowledged is there: none is lost.
	if chain < min(stored, keepAll) {
		t.Errorf("%d were acknowledged, the chain has %d", stored, chain)
	}
}
