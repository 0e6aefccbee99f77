package maintenance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/store/storetest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// place is where a store is.
type place struct {
	open   func() (store.Backend, error)
	medium func() (maintenance.Medium, error)
	slices int // of an assignment
}

// inPieces is how many slices make an assignment of two pieces. What is compressed is one
// piece, whatever it has.
const inPieces, inOne = 75_000, 5_000

var media = map[string]func(t *testing.T, name string) place{
	"etcd": func(t *testing.T, name string) place {
		cfg := etcdstore.Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t) + name, RequestTimeout: time.Minute}
		return place{
			func() (store.Backend, error) { return etcdstore.Open(t.Context(), cfg) },
			func() (maintenance.Medium, error) { return etcdstore.OpenMedium(cfg) },
			inPieces,
		}
	},
	"pebble": func(t *testing.T, name string) place {
		dir, cfg := filepath.Join(t.TempDir(), name), pebblestore.Config{Timeout: time.Minute, Compress: true}
		return place{
			func() (store.Backend, error) { return pebblestore.Open(dir, cfg) },
			func() (maintenance.Medium, error) {
				return pebblestore.OpenMedium(t.Context(), dir, cfg, pebblestore.MayCreate)
			},
			inOne,
		}
	},
}

func onEach(t *testing.T, f func(t *testing.T, create func(name string) place)) {
	for name, create := range media {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(name string) place { return create(t, name) })
		})
	}
}

func (p place) store(t *testing.T, f func(s store.Backend)) {
	t.Helper()
	s, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	f(s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func (p place) on(t *testing.T, f func(m maintenance.Medium)) {
	t.Helper()
	m, err := p.medium()
	if err != nil {
		t.Fatal(err)
	}
	f(m)
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func snapshot(t *testing.T, m maintenance.Medium) *maintenance.Snapshot {
	t.Helper()
	s, err := m.Snapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, m maintenance.Medium, o maintenance.Options) *maintenance.Report {
	t.Helper()
	r, err := maintenance.Check(t.Context(), m.Where(), snapshot(t, m), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func by(action string) store.Entry {
	return store.Entry{Action: action, Stamp: store.Stamp{Who: "op", When: time.UnixMilli(7).UTC()}}
}

// fill makes job a with orders and some generations, job b without an assignment, and
// job c, which is deleted. It returns what a has.
func (p place) fill(t *testing.T, s store.Backend) (newest *assignment.Assignment) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.PutJobBy(ctx, assignment.JobConfig{Name: name}, store.NoVersion, by("create job")); err != nil {
			t.Fatal(err)
		}
	}
	next := store.Overrides{Version: 2, Exclude: []store.Exclusion{{Stamp: store.Stamp{Who: "op"}, Order: 2, Task: "task-9"}}}
	order := by("exclude task-9")
	order.Order = 2
	if err := s.PutOverrides(ctx, "a", next, order, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.PutNames(ctx, "a", storetest.Names(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteJobBy(ctx, "c", by("delete job")); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	a := storetest.First("a", s.ID(), assignment.Generation(time.Now().UnixMilli()), 5, p.slices)
	for i := range 6 {
		e := storetest.Entry(a, 2)
		if err := s.Commit(ctx, store.Commit{Next: a, Entry: &e, Keep: 100}); err != nil {
			t.Fatal(err)
		}
		newest = a
		if a = storetest.Next(a, a.Generation()+1, .001, "x", rng); i == 2 { // a checkpoint
			a = storetest.Shuffled(newest, newest.Generation()+1, rng)
		}
	}
	return newest
}

// TestDumpCompressed: what is written compressed shows in a dump by the size that it becomes,
// and check finds nothing wrong with it, nor with what stood there before.
func TestDumpCompressed(t *testing.T) {
	t.Parallel()
	dir, cfg := t.TempDir(), pebblestore.Config{Timeout: time.Minute}
	p := place{
		func() (store.Backend, error) { return pebblestore.Open(dir, cfg) },
		func() (maintenance.Medium, error) {
			return pebblestore.OpenMedium(t.Context(), dir, cfg, pebblestore.ReadOnly)
		},
		inPieces,
	}
	shown := func() (n int) {
		p.on(t, func(m maintenance.Medium) {
			s := snapshot(t, m)
			if r := check(t, m, maintenance.Options{}); len(r.Faults) > 0 {
				t.Errorf("compressed %v: %+v", cfg.Compress, r.Faults)
			}
			if err := maintenance.Dump(s, "a", func(d maintenance.Dumped) error {
				n += bytes.Count(d.Value, []byte(`"whole_size"`))
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	var a *assignment.Assignment
	p.store(t, func(s store.Backend) { a = p.fill(t, s) })
	if n := shown(); n != 0 {
		t.Errorf("%d compressed assignments, want none without Compress", n)
	}
	cfg.Compress = true
	p.store(t, func(s store.Backend) {
		if err := s.Write(t.Context(), storetest.Shuffled(a, a.Generation()+1, rand.New(rand.NewPCG(2, 2)))); err != nil {
			t.Fatal(err)
		}
	})
	if n := shown(); n != 1 {
		t.Errorf("%d compressed assignments, want the last", n)
	}
}

// damage flips a bit of a record's value.
func damage(t *testing.T, m maintenance.Medium, kv maintenance.Record) {
	t.Helper()
	value := bytes.Clone(kv.Value)
	value[len(value)/2] ^= 4
	if err := m.Apply(t.Context(), []maintenance.Update{{Key: kv.Key, Was: kv.Value, Value: value}}); err != nil {
		t.Fatal(err)
	}
}

// TestCheckAndRepair corrupts, and then removes, each record of a store, one at a time.
// Each time check names it or what misses it, repair mends it where it can, and then the
// store is without fault and can be written to.
func TestCheckAndRepair(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, create func(string) place) {
		p := create("s")
		var newest *assignment.Assignment
		p.store(t, func(s store.Backend) { newest = p.fill(t, s) })
		var whole *maintenance.Snapshot
		p.on(t, func(m maintenance.Medium) {
			whole = snapshot(t, m)
			r := check(t, m, maintenance.Options{})
			if len(r.Faults)+len(r.Foreign) > 0 || r.Jobs != 2 || r.Deleted != 1 || r.StoreID != fmt.Sprintf("%016x", newest.StoreID()) {
				t.Fatalf("a good store: %+v", r)
			}
		})
		opts := maintenance.Options{DropOverrides: true, Config: func(job string, orders []store.Entry) (assignment.JobConfig, string, error) {
			return assignment.JobConfig{Name: job}, "test", nil
		}}
		for _, kv := range whole.Records {
			if kv.Key == "id" {
				continue
			}
			for _, how := range []string{"corrupt", "missing"} {
				p.on(t, func(m maintenance.Medium) {
					reset(t, m, whole)
					if how == "corrupt" {
						damage(t, m, kv)
					} else if err := m.Apply(t.Context(), []maintenance.Update{{Key: kv.Key, Was: kv.Value}}); err != nil {
						t.Fatal(err)
					}
					before := check(t, m, opts)
					if len(before.Faults) == 0 && !harmless(how, kv.Key) {
						t.Errorf("%s %s: no fault", how, kv.Key)
					}
					if how == "corrupt" && !slices.ContainsFunc(before.Faults, func(f maintenance.Fault) bool { return strings.Contains(f.Key+f.Problem, kv.Key) }) {
						t.Errorf("%s %s: it is not named: %+v", how, kv.Key, before.Faults)
					}
					if n, err := maintenance.Repair(t.Context(), m, before, nil); err != nil || n != len(before.Faults) {
						t.Errorf("%s %s: %d of %d mended, %v: %+v", how, kv.Key, n, len(before.Faults), err, before.Faults)
					}
					if after := check(t, m, opts); len(after.Faults) > 0 {
						t.Errorf("%s %s: after repair %+v", how, kv.Key, after.Faults)
					}
				})
				if t.Failed() {
					return
				}
				p.store(t, func(s store.Backend) { works(t, s, how+" "+kv.Key) })
			}
		}
	})
}

// TestRepairKeepsTheCreator: a config that is written anew is its creator's still, as far as
// the history tells who that is: after a job was deleted, the one who has created it again.
func TestRepairKeepsTheCreator(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, create func(string) place) {
		p, ctx := create("s"), t.Context()
		as := func(id, action string) store.Entry {
			e := by(action)
			e.Identity = id
			return e
		}
		p.store(t, func(s store.Backend) {
			put := func(name string, e store.Entry) {
				t.Helper()
				if _, err := s.PutJobBy(ctx, assignment.JobConfig{Name: name}, store.AnyVersion, e); err != nil {
					t.Fatal(err)
				}
			}
			put("a", as("spiffe://corp/ann", "create job: zone: \"\" -> \"z\""))
			put("a", as("spiffe://corp/bob", "change job: zone: \"z\" -> \"\""))
			put("b", as("spiffe://corp/ann", "create job"))
			if err := s.DeleteJobBy(ctx, "b", as("spiffe://corp/ann", "delete job")); err != nil {
				t.Fatal(err)
			}
			put("b", as("spiffe://corp/bob", "create job, and 30 more"))
			put("c", as("spiffe://corp/ann", "change job")) // the history does not begin with it
		})
		opts := maintenance.Options{Config: func(job string, _ []store.Entry) (assignment.JobConfig, string, error) {
			return assignment.JobConfig{Name: job}, "test", nil
		}}
		p.on(t, func(m maintenance.Medium) {
			for _, kv := range snapshot(t, m).Records {
				if strings.HasSuffix(kv.Key, "/config") {
					damage(t, m, kv)
				}
			}
			r := check(t, m, opts)
			for i, unknown := range []bool{false, false, true} {
				if said := strings.Contains(r.Faults[i].Mend, "who created the job"); len(r.Faults) != 3 || said != unknown {
					t.Errorf("%+v", r.Faults)
				}
			}
			if n, err := maintenance.Repair(ctx, m, r, nil); err != nil || n != 3 {
				t.Fatalf("%d mended, %v", n, err)
			}
		})
		p.store(t, func(s store.Backend) {
			for name, want := range map[string]string{"a": "spiffe://corp/ann", "b": "spiffe://corp/bob", "c": ""} {
				if j, err := s.GetJob(ctx, name); err != nil || j.CreatedBy != want {
					t.Errorf("job %s: created by %q, %v; want %q", name, j.CreatedBy, err, want)
				}
			}
		})
	})
}

// harmless reports whether a record may be missing without a fault: what it says is gone
// with it.
func harmless(how, key string) bool {
	return how == "missing" && (strings.HasPrefix(key, "history/") || strings.HasPrefix(key, "gone/") || strings.HasPrefix(key, "names/") || strings.HasSuffix(key, "/overrides") || strings.HasPrefix(key, "jobs/b/"))
}

// reset puts all records back.
func reset(t *testing.T, m maintenance.Medium, to *maintenance.Snapshot) {
	t.Helper()
	is := snapshot(t, m)
	old := map[string][]byte{}
	for _, kv := range is.Records {
		old[kv.Key] = kv.Value
	}
	var group []maintenance.Update
	for _, kv := range to.Records {
		if kv.Key != "id" && !bytes.Equal(old[kv.Key], kv.Value) {
			group = append(group, maintenance.Update{Key: kv.Key, Any: true, Value: kv.Value})
		}
		delete(old, kv.Key)
	}
	for key := range old {
		group = append(group, maintenance.Update{Key: key, Any: true})
	}
	// One at a time: a piece is half of what one transaction may hold.
	for _, u := range group {
		if err := m.Apply(t.Context(), []maintenance.Update{u}); err != nil {
			t.Fatal(err)
		}
	}
}

// works writes to a store after a repair.
func works(t *testing.T, s store.Backend, after string) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.ListJobs(ctx); err != nil {
		t.Errorf("%s: jobs: %v", after, err)
	}
	if _, err := s.PutJobBy(ctx, assignment.JobConfig{Name: "a", MaxReplicas: 7}, store.AnyVersion, by("change job")); err != nil {
		t.Errorf("%s: put: %v", after, err)
		return
	}
	a, err := s.Read(ctx, "a")
	var next *assignment.Assignment
	switch {
	case errors.Is(err, store.ErrNotFound):
		next = storetest.First("a", s.ID(), assignment.Generation(time.Now().Add(time.Hour).UnixMilli()), 2, 10)
	case err != nil:
		t.Errorf("%s: read: %v", after, err)
		return
	default:
		next = storetest.Next(a, a.Generation()+100, .1, "x", rand.New(rand.NewPCG(2, 2)))
	}
	if err := s.Write(ctx, next); err != nil {
		t.Errorf("%s: write: %v", after, err)
	}
	if _, err := s.History(ctx, "a", 100); err != nil {
		t.Errorf("%s: history: %v", after, err)
	}
}

func backup(t *testing.T, m maintenance.Medium) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := maintenance.WriteBackup(&b, maintenance.Header{Created: time.Now(), Store: m.Where(), Program: "test"}, snapshot(t, m)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restore(t *testing.T, m maintenance.Medium, data []byte, id uint64) *maintenance.Restored {
	t.Helper()
	b, err := maintenance.ReadBackup(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	now := snapshot(t, m)
	r, err := maintenance.Plan(t.Context(), b, now, maintenance.RestoreOptions{StoreID: id, Attempt: 9, Now: time.Now(), Who: "op", Keep: []string{"lease/epoch", "lease-suspended/"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), m, now); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRestore restores a backup onto each kind of store: one that is empty, and the one
// that it is of, after that has gone on, lost jobs and got others.
func TestRestore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, create func(string) place) {
		ctx := t.Context()
		p := create("s")
		var was, later *assignment.Assignment
		p.store(t, func(s store.Backend) { was = p.fill(t, s) })
		var data []byte
		p.on(t, func(m maintenance.Medium) { data = backup(t, m) })
		p.store(t, func(s store.Backend) {
			later = storetest.Next(was, was.Generation()+assignment.Generation(time.Hour.Milliseconds()), .1, "x", rand.New(rand.NewPCG(3, 3)))
			if err := s.Write(ctx, later); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a", "new"} {
				if _, err := s.PutJob(ctx, assignment.JobConfig{Name: name, MaxReplicas: 3}, store.AnyVersion); err != nil {
					t.Fatal(err)
				}
			}
		})
		p.on(t, func(m maintenance.Medium) {
			r := restore(t, m, data, 4711)
			if len(r.Jobs) != 2 || r.Jobs[0].Job != "a" || r.Jobs[0].From != int64(was.Generation()) || r.Jobs[0].Replaces != int64(later.Generation()) || fmt.Sprint(r.Lost) != "[new]" || r.Consistent {
				t.Errorf("%+v", r)
			}
		})
		other := create("other")
		other.on(t, func(m maintenance.Medium) { restore(t, m, data, 4712) })
		elsewhere := media[map[bool]string{true: "etcd", false: "pebble"}[strings.HasSuffix(t.Name(), "pebble")]](t, "elsewhere")
		elsewhere.on(t, func(m maintenance.Medium) { restore(t, m, data, 4713) })
		for i, at := range []place{p, other, elsewhere} {
			at.on(t, func(m maintenance.Medium) {
				if r := check(t, m, maintenance.Options{}); len(r.Faults)+len(r.Foreign) > 0 || r.Jobs != 2 {
					t.Errorf("%d: %+v", i, r)
				}
			})
			at.store(t, func(s store.Backend) {
				if s.ID() != 4711+uint64(i) {
					t.Errorf("%d: store id %d", i, s.ID())
				}
				a, err := s.Read(ctx, "a")
				if err != nil {
					t.Fatal(err)
				}
				if a.Generation() <= was.Generation() || i == 0 && a.Generation() <= later.Generation() || !a.Newer(later) {
					t.Errorf("%d: generation %d after %d and %d", i, a.Generation(), was.Generation(), later.Generation())
				}
				same := a.NumSlices() == was.NumSlices() && a.NumTasks() == was.NumTasks()
				for n := 0; same && n < a.NumSlices(); n++ {
					same = a.Slice(n) == was.Slice(n) && a.Replicas(n).Position(0) == was.Replicas(n).Position(0)
					if since := a.Replicas(n).Since(0); since != a.Generation() {
						t.Fatalf("%d: slice %d is owned since %d", i, n, since)
					}
				}
				if !same {
					t.Errorf("%d: the placement is another", i)
				}
				j, err := s.GetJob(ctx, "a")
				if err != nil || j.Config != (assignment.JobConfig{Name: "a"}).WithDefaults() || j.Version < 2 || i == 0 && j.Version < 3 {
					t.Errorf("%d: %+v, %v", i, j, err)
				}
				c, err := s.Overrides(ctx, "a")
				if err != nil || c.Excludes("task-9") == nil {
					t.Errorf("%d: orders %+v, %v", i, c, err)
				}
				if n, err := s.Names(ctx, "a"); err != nil || n.Version != 0 || len(n.Held) > 0 {
					t.Errorf("%d: names %+v, %v", i, n, err)
				}
				h, err := s.History(ctx, "a", 100)
				if err != nil || len(h) != 2+1+6+1 || !strings.HasPrefix(h[len(h)-2].Action, "restore the store") || h[len(h)-1].Generation != a.Generation() {
					t.Errorf("%d: history of %d, %v: %+v", i, len(h), err, h)
				}
				if h, err := s.History(ctx, "c", 100); err != nil || len(h) == 0 {
					t.Errorf("%d: history of what is deleted: %v, %v", i, h, err)
				}
				works(t, s, fmt.Sprint("restore ", i))
				if i > 0 {
					return
				}
				if _, err := s.GetJob(ctx, "new"); !errors.Is(err, store.ErrNotFound) {
					t.Errorf("a job that the backup does not have: %v", err)
				}
				if j, err := s.PutJob(ctx, assignment.JobConfig{Name: "new"}, store.NoVersion); err != nil || j.Version != 2 {
					t.Errorf("it is made anew: %+v, %v", j, err)
				}
			})
		}
	})
}

// TestBrokenOff: a store whose restore was broken off in etcd is refused, until it is
// restored. One that has changed since it was looked at is not replaced.
func TestBrokenOff(t *testing.T) {
	p := media["etcd"](t, "s")
	p.store(t, func(s store.Backend) { p.fill(t, s) })
	var data []byte
	p.on(t, func(m maintenance.Medium) {
		data = backup(t, m)
		b, err := maintenance.ReadBackup(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		old := snapshot(t, m)
		r, err := maintenance.Plan(t.Context(), b, old, maintenance.RestoreOptions{StoreID: 1, Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		p.store(t, func(s store.Backend) {
			if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "b", MaxReplicas: 2}, store.AnyVersion); err != nil {
				t.Fatal(err)
			}
		})
		if err := r.Apply(t.Context(), m, old); !errors.Is(err, maintenance.ErrNotReplaced) || !errors.Is(err, store.ErrConflict) {
			t.Errorf("of a store that has changed: %v", err)
		}
		p.store(t, func(s store.Backend) {
			if j, err := s.GetJob(t.Context(), "b"); err != nil || j.Config.MaxReplicas != 2 {
				t.Errorf("it has lost what was written: %+v, %v", j, err)
			}
		})
		// A record that no transaction takes, after others that were put.
		if err := m.Replace(t.Context(), snapshot(t, m), maintenance.Replacement{StoreID: 2, Records: []maintenance.Record{{Key: "gone/x", Value: []byte("x")}, {Key: "jobs/b/config", Value: make([]byte, 4<<20)}}}); err == nil {
			t.Error("a record of 4 MiB was put")
		}
	})
	if s, err := p.open(); err == nil || !strings.Contains(err.Error(), "a restore is under way, or was broken off") {
		if err == nil {
			_ = s.Close()
		}
		t.Errorf("a store that is half restored: %v", err)
	}
	p.on(t, func(m maintenance.Medium) {
		if r := check(t, m, maintenance.Options{}); !slices.ContainsFunc(r.Faults, func(f maintenance.Fault) bool { return f.Key == "id" && strings.Contains(f.Problem, "broken off") }) {
			t.Errorf("%+v", r)
		}
		restore(t, m, data, 3)
	})
	p.store(t, func(s store.Backend) { works(t, s, "restore") })
}

// TestPlanRefuses what cannot be restored whole.
func TestPlanRefuses(t *testing.T) {
	p := media["pebble"](t, "s")
	p.store(t, func(s store.Backend) { p.fill(t, s) })
	p.on(t, func(m maintenance.Medium) {
		s := snapshot(t, m)
		i := slices.IndexFunc(s.Records, func(kv maintenance.Record) bool { return kv.Key == "jobs/b/config" })
		s.Records[i].Value = []byte("junk")
		for _, b := range []*maintenance.Snapshot{s, {}} {
			if _, err := maintenance.Plan(t.Context(), &maintenance.Backup{Snapshot: b}, snapshot(t, m), maintenance.RestoreOptions{StoreID: 1, Now: time.Now()}); !errors.Is(err, maintenance.ErrBackup) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestGaps(t *testing.T) {
	for want, keep := range map[string][]string{
		`[["" ""]]`:                 nil,
		`[["" "id"] ["id\x00" ""]]`: {"id"},
		`[["" "a/"] ["a0" "lease/e"] ["lease/e\x00" ""]]`:   {"lease/e", "a/"},
		`[["" "id"] ["id\x00" "lease-x/"] ["lease-x0" ""]]`: {"lease-x/", "id"},
	} {
		if got := fmt.Sprintf("%q", maintenance.Gaps(keep)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestRefusedBackups: no backup but a whole one is read.
func TestRefusedBackups(t *testing.T) {
	var b bytes.Buffer
	s := &maintenance.Snapshot{Revision: 7, Records: []maintenance.Record{{Key: "a", Value: []byte("1")}, {Key: "b", Value: make([]byte, record.MaxValue)}}}
	if err := maintenance.WriteBackup(&b, maintenance.Header{Store: "x"}, s); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	if got, err := maintenance.ReadBackup(bytes.NewReader(good)); err != nil || got.Header.Revision != 7 || len(got.Snapshot.Records) != 2 || !bytes.Equal(got.Snapshot.Records[0].Value, []byte("1")) {
		t.Fatalf("%+v, %v", got, err)
	}
	refused := func(what string, data []byte) {
		t.Helper()
		if _, err := maintenance.ReadBackup(bytes.NewReader(data)); !errors.Is(err, maintenance.ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, n := range []int{0, 1, 8, 9, 12, 30, 200, len(good) / 2, len(good) - 33, len(good) - 1} {
		refused(fmt.Sprint("the first ", n, " bytes"), good[:n])
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		bad := bytes.Clone(good)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		refused("a bit", bad)
	}
	refused("more", append(bytes.Clone(good), 0))
	if err := maintenance.WriteBackup(&b, maintenance.Header{}, &maintenance.Snapshot{Records: []maintenance.Record{{Key: "x", Value: make([]byte, 2<<20)}}}); err == nil {
		t.Error("a record of 2 MiB was written")
	}
}

// FuzzReadBackup: whatever is read is what would be written again.
func FuzzReadBackup(f *testing.F) {
	var b bytes.Buffer
	s := &maintenance.Snapshot{Revision: 7, Records: []maintenance.Record{{Key: "a", Value: []byte("1")}, {Key: "b"}}}
	if err := maintenance.WriteBackup(&b, maintenance.Header{Store: "x", Created: time.UnixMilli(1)}, s); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := maintenance.ReadBackup(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, maintenance.ErrBackup) {
				t.Errorf("%v", err)
			}
			return
		}
		var out bytes.Buffer
		if err := maintenance.WriteBackup(&out, b.Header, b.Snapshot); err != nil {
			t.Fatal(err)
		}
		again, err := maintenance.ReadBackup(&out)
		if err != nil || len(again.Snapshot.Records) != len(b.Snapshot.Records) {
			t.Errorf("%v", err)
		}
	})
}

// FuzzCheck gives Check, Dump and Plan records that may be anything.
func FuzzCheck(f *testing.F) {
	l := record.Layout{StoreID: 5}
	f.Add("jobs/a/config", l.EncodeJob(store.Job{Config: assignment.JobConfig{Name: "a"}.WithDefaults(), Version: 1}))
	f.Add("jobs/a/head", l.EncodeHead("a", &record.Head{Generation: 1, Segments: []record.Segment{{First: 1, Generations: 1}}}))
	f.Add("generations/a/0000000000000001", l.EncodeGeneration("a", &record.Generation{Generation: 1, Whole: record.Blob{Size: 3, Inline: []byte("abc")}}))
	f.Add("chunks/a/0000000000000001/0000000000000001/w0000", []byte{1})
	f.Add("names/a", record.EncodeNames(l, "a", storetest.Names(1)))
	f.Add("gone/a", l.EncodeTombstone("a", record.Tombstone{Version: 1}))
	f.Add("history/a/g/0000000000000001", []byte{})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		s := &maintenance.Snapshot{}
		for _, kv := range []maintenance.Record{
			{Key: "id", Value: l.EncodeIdentity(record.Identity{StoreID: 5})},
			{Key: "jobs/a/config", Value: l.EncodeJob(store.Job{Config: assignment.JobConfig{Name: "a"}.WithDefaults(), Version: 1})},
			{Key: key, Value: value},
		} {
			s.Records = slices.DeleteFunc(s.Records, func(o maintenance.Record) bool { return o.Key == kv.Key })
			s.Records = append(s.Records, kv)
		}
		slices.SortFunc(s.Records, func(a, b maintenance.Record) int { return strings.Compare(a.Key, b.Key) })
		if _, err := maintenance.Check(context.Background(), "x", s, maintenance.Options{DropOverrides: true}); err != nil {
			t.Error(err)
		}
		if err := maintenance.Dump(s, "", func(maintenance.Dumped) error { return nil }); err != nil {
			t.Error(err)
		}
		_, _ = maintenance.Plan(context.Background(), &maintenance.Backup{Snapshot: s}, s, maintenance.RestoreOptions{StoreID: 6, Now: time.UnixMilli(9)})
	})
}
