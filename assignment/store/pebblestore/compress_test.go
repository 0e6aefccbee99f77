package pebblestore

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
)

// A store that is opened with Compress and without it in turns reads what either has written,
// and takes fewer bytes for the one.
func TestCompress(t *testing.T) {
	t.Parallel()
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(1, 1))
	var all []*assignment.Assignment
	bytes := map[bool]int{}
	for i, compress := range []bool{false, true, false, true} {
		cfg := roomy
		cfg.Compress = compress
		s, err := Open(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range all {
			got, err := s.ReadGeneration(t.Context(), "a", want.Generation())
			if err != nil || !storetest.Same(got, want) {
				t.Errorf("generation %d: %v, %v", want.Generation(), got, err)
			}
		}
		next := storetest.First("a", s.ID(), 1, 3, 80_000)
		if len(all) > 0 {
			next = storetest.Shuffled(all[len(all)-1], assignment.Generation(i+1), rng) // written whole, as a delta is no shorter
		}
		if err := s.Write(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		all = append(all, next)
		kvs, err := s.scan(s.layout.ChunksFrom("a", next.Generation()), s.layout.ChunksFrom("a", next.Generation()+1))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			bytes[compress] += len(kv.Value)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if bytes[true] >= bytes[false] {
		t.Errorf("%d bytes compressed, %d as it is", bytes[true], bytes[false])
	}
}
