package record

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/slicer-project/slicer/assignment"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"pgregory.net/rapid"
)

var layout = Layout{Prefix: "/p/", StoreID: 7}

// shelf is a store of records in memory.
type shelf map[string][]byte

func (s shelf) Scan(_ context.Context, from, to string) (kvs []KV, err error) {
	for k, v := range s {
		if k >= from && k < to {
			kvs = append(kvs, KV{k, v})
		}
	}
	slices.SortFunc(kvs, func(a, b KV) int { return strings.Compare(a.Key, b.Key) })
	return kvs, nil
}

// carryOut does what a change says.
func (s shelf) carryOut(job string, c *Change) {
	head, generation := layout.Records(job, c)
	for _, kv := range append(c.Pieces, head, generation) {
		s[kv.Key] = kv.Value
	}
	for k := range s {
		if c.DropFrom != c.DropTo && (k >= layout.Generation(job, c.DropFrom) && k < layout.Generation(job, c.DropTo) ||
			k >= layout.ChunksFrom(job, c.DropFrom) && k < layout.ChunksFrom(job, c.DropTo)) {
			delete(s, k)
		}
	}
}

// TestPlan writes random rows of assignments and reads them back by every way
// there is.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		keep := rapid.IntRange(2, 70).Draw(t, "keep")
		size := rapid.SampledFrom([]int{1, 10, 200}).Draw(t, "slices")
		src := make(shelf)
		var head *Head
		var a *assignment.Assignment
		var all []*assignment.Assignment
		writer := layout // what reads need not be told
		for range rapid.IntRange(1, 200).Draw(t, "writes") {
			next := storetest.First("a", layout.StoreID, 1, 3, size)
			if a != nil {
				g := a.Generation() + 1 + assignment.Generation(rng.IntN(2))
				if next = storetest.Next(a, g, .02*float64(rng.IntN(2)), "x", rng); rng.IntN(40) == 0 {
					next = storetest.Shuffled(a, g, rng)
				}
			}
			writer.Compress = rng.IntN(2) == 0
			c, err := writer.Plan(head, a, next, keep, rng.Uint64())
			if err != nil {
				t.Fatal(err)
			}
			src.carryOut("a", c)
			a, all = next, append(all, next)
			if head, err = layout.DecodeHead("a", src[layout.Head("a")]); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Head, head); diff != "" {
				t.Fatal(diff)
			}
		}
		kept := 0
		for _, s := range head.Segments {
			kept += s.Generations
			if s.Generations > MaxSegment || s.Deltas > s.Whole {
				t.Errorf("segment %+v", s)
			}
		}
		if want := min(keep, len(all)); kept < want || kept-head.Segments[0].Generations >= keep {
			t.Errorf("%d generations are kept in %+v, want %d and no segment too many", kept, head.Segments, want)
		}
		var base *assignment.Assignment
		for i, want := range all {
			got, err := layout.Read(ctx, src, "a", head, want.Generation())
			if i < len(all)-kept {
				if !errors.Is(err, store.ErrNotFound) {
					t.Errorf("generation %d: %v, want not found", want.Generation(), err)
				}
				continue
			}
			if err != nil || !storetest.Same(got, want) {
				t.Fatalf("generation %d: %v, %v", want.Generation(), got, err)
			}
			base = got
			kvs, _ := src.Scan(ctx, layout.Generation("a", base.Generation()+1), After(layout.Generations("a")))
			if got, ok, err := layout.Follow(ctx, src, "a", head, base, kvs); err != nil || ok && !storetest.Same(got, a) {
				t.Errorf("from %d: %v, %v", base.Generation(), got, err)
			}
		}
		for k := range src {
			if g, ok := layout.GenerationOf("a", k); ok && g < head.Segments[0].First {
				t.Errorf("generation %d is left", g)
			}
		}
	})
}

func TestFollowRefusesGaps(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 1))
	src := make(shelf)
	var head *Head
	var base *assignment.Assignment
	all := []*assignment.Assignment{storetest.First("a", layout.StoreID, 1, 3, 100)}
	for i := range 4 {
		c, err := layout.Plan(head, base, all[i], 64, 1)
		if err != nil {
			t.Fatal(err)
		}
		src.carryOut("a", c)
		head, base = c.Head, all[i]
		all = append(all, storetest.Next(base, base.Generation()+1, .01, "x", rng))
	}
	kvs, _ := src.Scan(ctx, layout.Generation("a", 2), After(layout.Generations("a")))
	for name, c := range map[string]struct {
		base *assignment.Assignment
		kvs  []KV
	}{
		"nothing":         {all[0], nil},
		"not the newest":  {all[0], kvs[:2]},
		"not the next":    {all[0], kvs[1:]},
		"another's child": {all[1], kvs},
	} {
		if a, ok, err := layout.Follow(ctx, src, "a", head, c.base, c.kvs); ok || err != nil {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if _, _, err := layout.Follow(ctx, src, "a", head, all[0], []KV{kvs[0], kvs[2]}); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), kvs[1].Key) {
		t.Errorf("a gap: %v", err)
	}
	if a, ok, err := layout.Follow(ctx, src, "a", head, all[0], kvs); !ok || err != nil || !storetest.Same(a, all[3]) {
		t.Errorf("%v, %v", a, err)
	}
}

// TestGolden pins the form of the records: what is on disk is read for ever.
func TestGolden(t *testing.T) {
	l := Layout{Prefix: "/p/", StoreID: 0x1122334455667788}
	for _, c := range []struct {
		key   string
		value []byte
		want  string
	}{
		{l.ID(), l.EncodeIdentity(Identity{StoreID: l.StoreID, Opened: 3, Writes: 9}), "id=0126a9e2aa0fe3802909887766554433221110031809"},
		{l.Head("a"), l.EncodeHead("a", &Head{5, 6, []Segment{{1, 2, 300, 4}}, 0}), "jobs/a/head=01b0d3c537070291d408051106000000000000001a090801100218ac022004"},
		{l.Gone("a"), l.EncodeTombstone("a", Tombstone{2, 77, 0}), "gone/a=010083a58599f58b080802104d"},
		{NamesKey(l, "a"), EncodeNames(l, "a", store.Names{Version: 2, Held: []store.Held{{Task: "t", Identity: "spiffe://c/t"}}}), "names/a=01f4a06bf988d1ee24080212160a117370696666653a2f2f632f7b7461736b7d120174"},
		{l.AttemptChunks("a", 10, 11) + "w0000", nil, "chunks/a/000000000000000a/000000000000000b/w0000="},
		{l.Attempt("a", 10, 11), nil, "attempts/a/000000000000000a/000000000000000b="},
		{l.EncodeCandidate(store.Candidate{ID: "x", Address: "h:1"}).Key, nil, "assigners/x="},
	} {
		got := fmt.Sprintf("%s=%x", strings.TrimPrefix(c.key, "/p/"), c.value)
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestSealNamesKey(t *testing.T) {
	a := layout.Seal("/p/x", []byte("body"))
	for name, c := range map[string]struct {
		key   string
		value []byte
	}{
		"another's":   {"/p/y", a},
		"short":       {"/p/x", a[:overhead-1]},
		"long":        {"/p/x", append(slices.Clone(a), make([]byte, maxValue)...)},
		"odd format":  {"/p/x", append([]byte{2}, a[1:]...)},
		"other body":  {"/p/x", append(slices.Clone(a[:overhead]), "Body"...)},
		"nothing":     {"/p/x", nil},
		"no checksum": {"/p/x", append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, "body"...)},
	} {
		if _, err := layout.Open(c.key, c.value); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A store that has moved to another prefix is still good.
	if body, err := (Layout{Prefix: "/q/r/"}).Open("/q/r/x", a); err != nil || string(body) != "body" {
		t.Errorf("%q, %v", body, err)
	}
}

// FuzzDecode gives bodies that are sealed well to every decoder.
func FuzzDecode(f *testing.F) {
	l := layout
	rng := rand.New(rand.NewPCG(1, 1))
	first := storetest.First("a", l.StoreID, 5, 3, 10)
	c, err := l.Plan(nil, nil, first, 4, 1)
	if err != nil {
		f.Fatal(err)
	}
	head, generation := l.Records("a", c)
	c2, err := l.Plan(c.Head, first, storetest.Next(first, 6, .1, "x", rng), 4, 1)
	if err != nil {
		f.Fatal(err)
	}
	_, generation2 := l.Records("a", c2)
	config := assignment.JobConfig{Name: "a"}.WithDefaults()
	for _, v := range [][]byte{
		l.EncodeIdentity(Identity{1, 2, 3}), l.EncodeJob(store.Job{Config: config, Version: 1}), l.EncodeTombstone("a", Tombstone{1, 2, 3}),
		l.EncodeCandidate(store.Candidate{ID: "x", Address: "h:1"}).Value, head.Value, generation.Value, generation2.Value,
		l.EncodeOverrides("a", storetest.Overrides(9)), l.EncodeEntry(l.Entry("a", OfOrders, 9), storetest.Order(9)).Value,
		l.EncodeEntry(l.Entry("a", OfGenerations, 1), storetest.Entry(first, 9)).Value, EncodeNames(l, "a", storetest.Names(9)),
	} {
		f.Add(v[overhead:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		corrupt := func(key string, err error) bool {
			if err != nil && (!errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), key)) {
				t.Errorf("%s: %v", key, err)
			}
			return err != nil
		}
		if id, err := l.DecodeIdentity(l.Seal(l.ID(), body)); !corrupt(l.ID(), err) && id.StoreID == 0 {
			t.Error(id)
		}
		if j, err := l.DecodeJob("a", l.Seal(l.Config("a"), body)); !corrupt(l.Config("a"), err) {
			if again, err := l.DecodeJob("a", l.EncodeJob(j)); err != nil || again != j {
				t.Errorf("%+v, %+v, %v", j, again, err)
			}
		}
		gone := KV{l.Gone("a"), l.Seal(l.Gone("a"), body)}
		if _, err := l.DecodeTombstone("a", gone.Value); corrupt(gone.Key, err) {
			err = nil
		}
		if b, _ := l.Bury("a", gone.Value, &gone, &gone, 9, nil); b.Generation < 9 || b.Version < 1 || b.Overrides < 1 {
			t.Error(b)
		}
		by := storetest.Order(0)
		if b, p := l.Bury("a", gone.Value, &gone, nil, 9, &by); len(p.Records) != 2 || p.Records[1].Key != l.Entry("a", OfOrders, b.Overrides) || p.To > p.Records[1].Key {
			t.Errorf("%+v, %+v", b, p)
		}
		if h, err := l.DecodeHead("a", l.Seal(l.Head("a"), body)); !corrupt(l.Head("a"), err) {
			_, _ = l.Read(context.Background(), shelf{}, "a", h, h.Generation)
			if again, err := l.DecodeHead("a", l.EncodeHead("a", h)); err != nil || cmp.Diff(h, again) != "" {
				t.Errorf("%+v, %+v, %v", h, again, err)
			}
		}
		for g := assignment.Generation(5); g <= 6; g++ {
			kv := KV{l.Generation("a", g), l.Seal(l.Generation("a", g), body)}
			if _, err := l.DecodeGeneration("a", kv); corrupt(kv.Key, err) {
				continue
			}
			if _, err := l.Read(context.Background(), shelf{kv.Key: kv.Value}, "a", &Head{Generation: g, Segments: []Segment{{First: g, Generations: 1}}}, g); err == nil && g == 6 {
				t.Error("read from a delta alone")
			}
			_, _, _ = l.Follow(context.Background(), shelf{}, "a", &Head{Generation: g}, first, []KV{kv})
		}
		if c, err := l.DecodeOverrides("a", l.Seal(l.Overrides("a"), body)); !corrupt(l.Overrides("a"), err) {
			if again, err := l.DecodeOverrides("a", l.EncodeOverrides("a", c)); err != nil || cmp.Diff(c, again, cmpopts.EquateEmpty()) != "" {
				t.Errorf("%+v, %+v, %v", c, again, err)
			}
		}
		if n, err := DecodeNames(l, "a", l.Seal(NamesKey(l, "a"), body)); !corrupt(NamesKey(l, "a"), err) {
			if again, err := DecodeNames(l, "a", EncodeNames(l, "a", n)); err != nil || cmp.Diff(n, again, cmpopts.EquateEmpty()) != "" {
				t.Errorf("%+v, %+v, %v", n, again, err)
			}
		}
		entry := l.Entry("a", OfGenerations, 1)
		if e, err := l.DecodeEntry(KV{entry, l.Seal(entry, body)}); !corrupt(entry, err) {
			again, err := l.DecodeEntry(l.EncodeEntry(entry, e))
			if e.Fit(); err != nil || cmp.Diff(e, again, cmpopts.EquateEmpty()) != "" {
				t.Errorf("%+v, %+v, %v", e, again, err)
			}
		}
		kv := KV{l.Assigners() + "x", l.Seal(l.Assigners()+"x", body)}
		if c, err := l.DecodeCandidate(kv); !corrupt(kv.Key, err) && c.ID != "x" {
			t.Error(c)
		}
		_, _ = l.Open("/p/x", body)
	})
}

func FuzzKeys(f *testing.F) {
	f.Add("/p/jobs/a/head")
	f.Add("/p/jobs/a/config")
	f.Add("/p/jobs/a/overrides")
	f.Add("/p/generations/a/0000000000000005")
	f.Add("/p/attempts/a/0000000000000005/0000000000000007")
	f.Fuzz(func(t *testing.T, key string) {
		if job, p, ok := layout.JobOf(key); ok && key != [...]string{layout.Config(job), layout.Head(job), layout.Overrides(job)}[p] {
			t.Errorf("%q names job %q", key, job)
		}
		if g, ok := layout.GenerationOf("a", key); ok && key != layout.Generation("a", g) {
			t.Errorf("%q names generation %d", key, g)
		}
		if prefix, ok := layout.MarkedChunks(key); ok && strings.Replace(prefix, "/chunks/", "/attempts/", 1) != key+"/" {
			t.Errorf("%q marks %q", key, prefix)
		}
	})
}
