package assigner

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestPast(t *testing.T) {
	const keep = time.Minute
	var p past
	for i, step := range []struct {
		at   time.Duration
		rev  int64
		want int64
	}{
		{0, 10, 0}, {30 * time.Second, 20, 0}, {59 * time.Second, 30, 0},
		{60 * time.Second, 40, 10}, {61 * time.Second, 50, 10}, // not done yet
		{90 * time.Second, 60, 20},
		{time.Hour, 70, 60},
		{time.Hour + time.Second, 5, 0}, // it was wiped
		{time.Hour + 2*keep, 6, 5},
	} {
		if got := p.observe(step.at, keep, step.rev); got != step.want {
			t.Errorf("step %d: compact at %d, want %d", i, got, step.want)
		}
		if step.at == 90*time.Second {
			p.done = 20
			if got := p.observe(step.at+time.Second, keep, 60); got != 0 {
				t.Errorf("compact once more at %d", got)
			}
		}
	}
	for i := range 10_000 {
		p.observe(2*time.Hour+time.Duration(i)*time.Second, keep, int64(100+i))
	}
	if len(p.marks) > 70 {
		t.Errorf("%d marks of the past minute", len(p.marks))
	}
}

func TestGrowth(t *testing.T) {
	var g growth
	warned := 0
	for m := range 600 { // minutes in which nothing compacts
		if g.observe(time.Duration(m)*time.Minute, store.Usage{Uncompacted: int64(100 * m)}) {
			warned++
		}
	}
	if warned != 4 {
		t.Errorf("warned %d times in ten hours, want 4", warned)
	}
	for m := range 600 { // etcd compacts once an hour
		at := time.Duration(600+m) * time.Minute
		if g.observe(at, store.Usage{Uncompacted: 20_000, Compacted: int64(1 + m/60)}) {
			t.Fatalf("warned at %s of a store that is compacted", at)
		}
	}
	g = growth{}
	for m := range 600 { // little is written
		if g.observe(time.Duration(m)*time.Minute, store.Usage{Uncompacted: 500}) {
			t.Fatal("warned of a store that does not grow")
		}
	}
}

// TestCompact writes while an assigner compacts: readers and watchers that are behind begin
// again, and the metrics tell how much room there is.
func TestCompact(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := etcdtest.NewCluster(t, 1)
	open := func() *etcdstore.Store {
		t.Helper()
		st, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: c.Endpoints(), RequestTimeout: waittest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	st, other := open(), open()
	reg := prometheus.NewRegistry()
	n := start(t, Config{Stores: []NamedStore{{Backend: st}}, Registerer: reg})
	n.put(&slicerv1.JobConfig{Name: "job"})
	n.goRun(func() { n.stores[0].compact(st, 100*time.Millisecond) })
	w, err := other.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if names, err := w.Next(ctx); err != nil || strings.Join(names.Jobs(), " ") != "job" {
		t.Fatalf("%v, %v", names, err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	a := storetest.First("job", st.ID(), 1, 10, 1000)
	if err := st.Write(ctx, a); err != nil {
		t.Fatal(err)
	}
	var u store.Usage
	for end := time.Now().Add(waittest.Patience); u.Compacted < 20 || u.Uncompacted == 0; {
		if time.Now().After(end) {
			t.Fatalf("nothing is compacted: %+v", u)
		}
		a = storetest.Next(a, a.Generation()+1, .1, "z", rng)
		if err := st.Write(ctx, a); err != nil {
			t.Fatal(err)
		}
		if got, err := other.Read(ctx, "job"); err != nil || got.Generation() > a.Generation() {
			t.Fatalf("%v, %v, want %v", got, err, a)
		}
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		if u, err = other.Usage(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	n.stores[0].room.set(u)
	for name, want := range map[string]float64{
		"store_size_bytes": float64(u.Size), "store_in_use_bytes": float64(u.InUse), "store_quota_bytes": float64(u.Quota),
		"store_uncompacted_revisions": float64(u.Uncompacted),
	} {
		if got := gauges(t, reg, name)["default"]; got != want || got == 0 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// BenchmarkCompact writes 5,000 generations of a job with 60 tasks and 3,000 slices, one
// each 5 s of a clock of its own, and has etcd compacted as by --etcd-compact 5m; beside
// it, 300 that nothing compacts. It tells the largest size of the database.
func BenchmarkCompact(b *testing.B) {
	b.Run("compacted", func(b *testing.B) {
		if mb := fillDatabase(b, 5000, 5*time.Minute); mb > 20 {
			b.Errorf("the database has grown to %.1f MB, want at most 20", mb)
		}
	})
	b.Run("never", func(b *testing.B) { fillDatabase(b, 300, 0) })
}

func fillDatabase(b *testing.B, generations int, keep time.Duration) (mb float64) {
	ctx := b.Context()
	for b.Loop() {
		c := etcdtest.NewCluster(b, 1)
		st, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: c.Endpoints()})
		if err != nil {
			b.Fatal(err)
		}
		cfg, err := st.PutJob(ctx, assignment.JobConfig{Name: "job"}, store.NoVersion)
		if err != nil {
			b.Fatal(err)
		}
		var p past
		var first, last store.Usage
		rng := rand.New(rand.NewPCG(1, 2))
		a := storetest.First("job", st.ID(), 1, 60, 3000)
		for i := range generations {
			e := store.Entry{Generation: a.Generation(), Previous: a.Previous(), Assigner: "assigner-1",
				Stamp: store.Stamp{When: time.UnixMilli(1_800_000_000_000).UTC(), Why: "load"}}
			for range 600 { // more than there is room for
				s := a.Slice(rng.IntN(a.NumSlices()))
				e.Decisions = append(e.Decisions, store.Decision{Kind: "move", Reason: "load above the mean", Slice: s,
					From: "task-10", To: "task-20", Benefit: rng.Float64(), KeyChurn: rng.Float64(), LoadChurn: rng.Float64()})
			}
			if err := st.Commit(ctx, store.Commit{Next: a, Entry: &e, Keep: cfg.Config.History}); err != nil {
				b.Fatal(err)
			}
			a = storetest.Next(a, a.Generation()+1, .3, "z", rng)
			if now := time.Duration(i) * 5 * time.Second; keep > 0 && now%usageEvery == 0 {
				rev, err := st.Revision(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if to := p.observe(now, keep, rev); to > 0 {
					if err := st.Compact(ctx, to); err != nil {
						b.Fatal(err)
					}
					p.done = to
				}
			}
			if i == 50 || i%500 == 0 || i == generations-1 {
				if last, err = st.Usage(ctx); err != nil {
					b.Fatal(err)
				}
				mb = max(mb, float64(last.Size)/1e6)
				b.Logf("%d generations: %.1f MB, %.1f in use, %d revisions", i+1, float64(last.Size)/1e6, float64(last.InUse)/1e6, last.Uncompacted)
			}
			if i == 50 {
				first = last
			}
		}
		if keep == 0 {
			b.ReportMetric(float64(last.InUse-first.InUse)/float64(generations-51)/1e3, "KB/generation")
		}
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(mb, "MB")
	return mb
}
