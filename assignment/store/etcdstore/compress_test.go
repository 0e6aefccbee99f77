package etcdstore

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/storetest"
)

// Two assigners on one store, of which one writes wholes compressed, read what either has
// written, as does a third process that begins then; and the one sends etcd fewer bytes.
func TestCompress(t *testing.T) {
	t.Parallel()
	cfg, rng := config(t), rand.New(rand.NewPCG(1, 13))
	sent := map[bool]int{}
	writers, counted := map[bool]*Store{}, map[bool]*steps{}
	for _, compress := range []bool{false, true} {
		st := &steps{sent: func(_ string, req any) { sent[compress] += proto.Size(req.(proto.Message)) }}
		mine := cfg
		mine.Compress, mine.dialOptions = compress, st.options()
		writers[compress], counted[compress] = open(t, mine), st
	}
	putJob(t, writers[false], "a")
	var all []*assignment.Assignment
	for i, compress := range []bool{false, true, true, false} {
		s := writers[compress]
		next := storetest.First("a", s.ID(), 1, 3, 80_000)
		if i > 0 {
			next = storetest.Shuffled(all[i-1], assignment.Generation(i+1), rng) // written whole, as a delta is no shorter
		}
		if err := s.Write(counted[compress].mark(t.Context()), next); err != nil {
			t.Fatal(err)
		}
		all = append(all, next)
		for who, s := range map[string]*Store{"as it is": writers[false], "compressed": writers[true], "as it is, a third": open(t, cfg)} {
			if got, err := s.Read(t.Context(), "a"); err != nil || !storetest.Same(got, next) {
				t.Errorf("generation %d, read by the one that writes %s: %v, %v", i+1, who, got, err)
			}
			for _, want := range all {
				if got, err := s.ReadGeneration(t.Context(), "a", want.Generation()); err != nil || !storetest.Same(got, want) {
					t.Errorf("generation %d of %d, read by the one that writes %s: %v, %v", want.Generation(), i+1, who, got, err)
				}
			}
		}
	}
	if sent[true] >= sent[false] {
		t.Errorf("%d bytes compressed, %d as it is", sent[true], sent[false])
	}
}
