package etcdstore

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Writes of a process that does not have the job lease store nothing and leave nothing
// behind, however large they are and whenever it is lost.
func TestWriteFenced(t *testing.T) {
	ctx := t.Context()
	var st steps
	cfg := config(t)
	cfg.dialOptions = st.options()
	s := open(t, cfg)
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	leader := s.layout.Leader("a")
	lead := func() int64 {
		t.Helper()
		if _, err := s.client.Delete(ctx, leader); err != nil {
			t.Fatal(err)
		}
		resp, err := s.client.Put(ctx, leader, "somebody")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	rng := rand.New(rand.NewPCG(1, 1))
	small := storetest.First("a", s.ID(), 1, 3, 12)
	if err := s.WriteFenced(ctx, small, 0); !errors.Is(err, store.ErrFenced) {
		t.Errorf("without a token: %v", err)
	}
	if err := s.WriteFenced(ctx, small, 77); !errors.Is(err, store.ErrFenced) {
		t.Errorf("no process leads: %v", err)
	}
	old := lead()
	if err := s.WriteFenced(ctx, small, old); err != nil {
		t.Fatal(err)
	}
	token := lead()
	next := storetest.Next(small, 2, .5, "x", rng)
	if err := s.WriteFenced(ctx, next, old); !errors.Is(err, store.ErrFenced) {
		t.Errorf("an old token: %v", err)
	}
	if _, err := s.client.Put(ctx, leader, "the same again"); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteFenced(ctx, next, token); err != nil {
		t.Errorf("the tenure goes on: %v", err)
	}
	// One that takes several requests loses the lease between any two of them.
	whole, err := assignment.Successor(next, assignment.Header{Job: "a", StoreID: s.ID(), Generation: 3}, storetest.Tasks(200, "x"),
		assignment.Placement{Starts: assignment.Equal(300_000), Owners: owners(300_000, 200)})
	if err != nil {
		t.Fatal(err)
	}
	for at := 1; ; at++ {
		token := lead()
		st.mu.Lock()
		st.count, st.at = 0, at
		st.before = func(any) error {
			_, err := s.client.Delete(ctx, leader)
			return err
		}
		st.mu.Unlock()
		err := s.WriteFenced(st.mark(ctx), whole, token)
		if err == nil {
			if at < 3 {
				t.Errorf("it took %d requests", at)
			}
			break
		}
		if !errors.Is(err, store.ErrFenced) {
			t.Errorf("lost before request %d: %v", at, err)
		}
		if a, err := s.Read(ctx, "a"); err != nil || a.Generation() != 2 {
			t.Errorf("lost before request %d: %v is stored, %v", at, a, err)
		}
		for _, prefix := range []string{s.layout.Attempts("a"), s.layout.ChunksFrom("a", 3)} {
			if left, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil || left.Count != 0 {
				t.Errorf("lost before request %d: %d keys are left at %s, %v", at, left.Count, prefix, err)
			}
		}
		if at > 100 {
			t.Fatal("it is never written")
		}
	}
}

func owners(n, tasks int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i*7919) % uint32(tasks)
	}
	return out
}
