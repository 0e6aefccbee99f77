package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
)

// prepared is a store with a few jobs, closed.
type prepared struct {
	h   *harness
	id  uint64
	all []*assignment.Assignment // of job a
}

func prepare(h *harness) *prepared {
	h.Helper()
	s := h.open()
	p := &prepared{h: h, id: s.ID()}
	for _, job := range []string{"a", "b", "c"} {
		h.job(s, job)
	}
	h.write(s, First("c", s.ID(), 3, 3, 10))
	if err := s.DeleteJob(h.Context(), "c"); err != nil {
		h.Fatal(err)
	}
	if err := s.PutOverrides(h.Context(), "a", Overrides(1), Order(1), 9); err != nil {
		h.Fatal(err)
	}
	h.name(s, "a", 1)
	rng := rand.New(rand.NewPCG(10, 10))
	a := First("a", s.ID(), 1, 5, 75_000) // two pieces
	for _, share := range []float64{.001, .2, 0} {
		h.commit(s, a, 1)
		p.all = append(p.all, a)
		a = Next(a, a.Generation()+1, share, "x", rng)
	}
	h.close(s)
	return p
}

func (p *prepared) raw() Raw {
	p.h.Helper()
	raw, err := p.h.Raw()
	if err != nil {
		p.h.Fatal(err)
	}
	return raw
}

// do runs f on the records themselves.
func (p *prepared) do(f func(Raw) error) {
	p.h.Helper()
	raw := p.raw()
	if err := errors.Join(f(raw), raw.Close()); err != nil {
		p.h.Fatal(err)
	}
}

// look does everything that reads and returns the errors, each of which must be
// of the kind given and name the key. What comes without error must be right.
func (p *prepared) look(kind error, key string) (errs []error) {
	t := p.h
	t.Helper()
	ctx := t.Context()
	s, err := t.Open()
	if err != nil {
		errs = append(errs, err)
	} else {
		defer t.close(s)
		if s.ID() != p.id {
			t.Errorf("store id %016x, want %016x", s.ID(), p.id)
		}
		jobs, err := s.ListJobs(ctx)
		if err != nil {
			errs = append(errs, err)
		} else if len(jobs) != 2 {
			t.Errorf("%d jobs, want 2", len(jobs))
		}
		for _, job := range []string{"a", "b"} {
			if j, err := s.GetJob(ctx, job); err != nil {
				errs = append(errs, err)
			} else if j.Config.Name != job || j.Version != 1 {
				t.Errorf("job %s is %+v", job, j)
			}
		}
		if c, err := s.Overrides(ctx, "a"); err != nil {
			errs = append(errs, err)
		} else if c.Version != 1 || len(c.Pins) != 2 {
			t.Errorf("the overrides are %+v", c)
		}
		if n, err := s.Names(ctx, "a"); err != nil {
			errs = append(errs, err)
			if err := s.PutNames(ctx, "a", Names(2)); err == nil {
				t.Error("damaged names are overwritten")
			}
		} else if n.Version != 1 || n.Of("task-2") != Names(1).Of("task-2") {
			t.Errorf("the names are %+v", n)
		}
		if all, err := s.History(ctx, "a", 10); err != nil {
			errs = append(errs, err)
			if len(all) != len(p.all) {
				t.Errorf("%d entries beside the damaged one, want %d", len(all), len(p.all))
			}
		} else if len(all) != len(p.all)+1 {
			t.Errorf("%d entries of history, want %d", len(all), len(p.all)+1)
		}
		for i, a := range p.all {
			got, err := s.ReadGeneration(ctx, "a", a.Generation())
			if i == len(p.all)-1 && err == nil {
				got, err = s.Read(ctx, "a")
			}
			if err != nil {
				errs = append(errs, err)
			} else if !Same(got, a) {
				t.Errorf("generation %d is wrong, and no call says so", a.Generation())
			}
		}
		if len(errs) == 0 { // the tombstone is looked at last
			if j, err := s.PutJob(ctx, assignment.JobConfig{Name: "c"}, store.NoVersion); err != nil {
				errs = append(errs, err)
			} else if j.Version != 2 {
				t.Errorf("version %d of a job made anew, want 2", j.Version)
			}
		}
	}
	for _, err := range errs {
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), key) {
			t.Errorf("error %q, want one that is %q and names %s", err, kind, key)
		}
	}
	return errs
}

// testCorrupt damages each record in several ways: whatever needs it says so and
// names it, and the rest goes on.
func testCorrupt(t *testing.T, h *harness) {
	p := prepare(h)
	var keys []string
	p.do(func(raw Raw) (err error) { keys, err = raw.Keys(); return err })
	if len(keys) < 10 {
		t.Fatalf("only %d records: %v", len(keys), keys)
	}
	kinds := make(map[string]bool)
	rng := rand.New(rand.NewPCG(11, 11))
	for _, key := range keys {
		var good []byte
		p.do(func(raw Raw) (err error) { good, err = raw.Get(key); return err })
		damages := []func([]byte) []byte{
			func(v []byte) []byte { v[rng.IntN(len(v))] ^= 1 << rng.IntN(8); return v },
			func(v []byte) []byte { return v[:rng.IntN(len(v))] },
			func(v []byte) []byte { return append(v, 0) },
			func([]byte) []byte { return nil },
		}
		for i, damage := range damages[:seedtest.Cases(len(damages))] {
			bad := damage(append([]byte(nil), good...))
			p.do(func(raw Raw) error { return raw.Put(key, bad) })
			if errs := p.look(store.ErrCorrupt, key); len(errs) == 0 {
				t.Errorf("damage %d to %s goes unnoticed", i, key)
			}
		}
		p.do(func(raw Raw) error { return raw.Put(key, good) })
		for _, kind := range []string{"/head", "/config", "gone/", "chunks/", "generations/", "/overrides", "names/", "history/a/g/", "history/a/o/"} {
			if strings.Contains(key, kind) {
				kinds[kind] = true
			}
		}
	}
	if len(kinds) != 9 {
		t.Errorf("only records of kinds %v were there", kinds)
	}
	if errs := p.look(store.ErrCorrupt, ""); len(errs) != 0 {
		t.Errorf("put right again: %v", errs)
	}
}

// testMissing takes away records that others need, and swaps two.
func testMissing(t *testing.T, h *harness) {
	p := prepare(h)
	var keys []string
	p.do(func(raw Raw) (err error) { keys, err = raw.Keys(); return err })
	for _, key := range keys {
		if !strings.Contains(key, "chunks/") && !strings.Contains(key, "generations/") {
			continue
		}
		var good []byte
		p.do(func(raw Raw) (err error) {
			if good, err = raw.Get(key); err == nil {
				err = raw.Delete(key)
			}
			return err
		})
		look := p.look
		if strings.Contains(key, "generations/") {
			look = p.lookOrMiss
		}
		if errs := look(store.ErrCorrupt, key); len(errs) == 0 {
			t.Errorf("no call misses %s", key)
		}
		p.do(func(raw Raw) error { return raw.Put(key, good) })
	}
	var head []byte
	for _, key := range keys {
		if strings.HasSuffix(key, "jobs/a/head") {
			p.do(func(raw Raw) (err error) { head, err = raw.Get(key); return err })
			other := strings.Replace(key, "/a/", "/b/", 1)
			p.do(func(raw Raw) error { return raw.Put(other, head) })
			s, err := h.Open()
			if err == nil {
				_, err = s.Read(t.Context(), "b")
				h.close(s)
			}
			h.is(err, store.ErrCorrupt)
		}
	}
	if head == nil {
		t.Error("no head")
	}
}

// lookOrMiss looks for generations one of which is not there: that one need not
// be found, and what is built on it is corrupt.
func (p *prepared) lookOrMiss(kind error, key string) (errs []error) {
	p.h.Helper()
	s := p.h.open()
	defer p.h.close(s)
	for _, a := range p.all {
		_, err := s.ReadGeneration(p.h.Context(), "a", a.Generation())
		missed := errors.Is(err, store.ErrNotFound) && strings.HasSuffix(key, fmt.Sprintf("/%016x", a.Generation()))
		if err != nil && !missed && (!errors.Is(err, kind) || !strings.Contains(err.Error(), key)) {
			p.h.Errorf("generation %d: error %v", a.Generation(), err)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// testDeleteCorrupt gets rid of a job whose records are damaged, and makes it anew.
func testDeleteCorrupt(t *testing.T, h *harness) {
	p := prepare(h)
	p.do(func(raw Raw) error {
		keys, err := raw.Keys()
		for _, key := range keys {
			if err == nil && (strings.Contains(key, "jobs/a/") || strings.Contains(key, "names/a") || strings.Contains(key, "generations/a/") || strings.Contains(key, "history/a/")) {
				err = raw.Put(key, []byte("damaged"))
			}
		}
		return err
	})
	s := h.open()
	_, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.AnyVersion)
	h.is(err, store.ErrCorrupt)
	h.is(s.Write(t.Context(), First("a", s.ID(), 50, 3, 10)), store.ErrCorrupt)
	jobs, err := s.ListJobs(t.Context())
	h.is(err, store.ErrCorrupt)
	if len(jobs) != 1 || jobs[0].Config.Name != "b" {
		t.Errorf("jobs %+v beside the damaged one, want b", jobs)
	}
	_, err = s.Overrides(t.Context(), "a")
	h.is(err, store.ErrCorrupt)
	h.is(s.PutOverrides(t.Context(), "a", Overrides(2), Order(2), 9), store.ErrCorrupt)
	_, err = s.PutJobBy(t.Context(), assignment.JobConfig{Name: "a"}, store.AnyVersion, note("put"))
	h.is(err, store.ErrCorrupt)
	_, err = s.Names(t.Context(), "a")
	h.is(err, store.ErrCorrupt)
	h.deleteNoted(s, "a")
	j, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.NoVersion)
	if err != nil || j.Version <= 1 {
		t.Errorf("version %d, %v; want one above 1", j.Version, err)
	}
	h.named(s, "a", store.Names{})
	last := p.all[len(p.all)-1].Generation()
	h.conflict(s.Write(t.Context(), First("a", s.ID(), last, 3, 10)), int64(last))
	h.write(s, First("a", s.ID(), last+1, 3, 10))
	if c, err := s.Overrides(t.Context(), "a"); err != nil || c.Version <= 1 || c.Freeze != nil {
		t.Errorf("overrides %+v, %v of the job made anew", c, err)
	}
}
