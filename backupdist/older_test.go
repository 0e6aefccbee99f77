package backupdist

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Those that fetch an older generation at the same time, as all slicelets of a job in consistent
// mode may, share one reading of it; those that fetch many are read a few at a time, and for
// those that have gone nothing is read.
func TestOlderGenerationsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		all := []*assignment.Assignment{assigned(t, nil, "web", 7, 10, 100)}
		for g := assignment.Generation(11); g < 40; g++ {
			all = append(all, assigned(t, all[len(all)-1], "web", 7, g, 100))
		}
		for _, a := range all {
			m.write(a)
		}
		m.hold = make(chan struct{})
		s, cc := start(t, m)
		synctest.Wait()
		fetch := func(ctx context.Context, g assignment.Generation) grpc.ServerStreamingClient[slicerv1.WatchResponse] {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(ctx, &slicerv1.FetchRequest{Job: "web", Generation: int64(g), Compressed: g%2 == 0})
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		asked := func() int {
			synctest.Wait()
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.older
		}
		var same, others []grpc.ServerStreamingClient[slicerv1.WatchResponse]
		for range 200 {
			same = append(same, fetch(t.Context(), 12))
		}
		if n := asked(); n != 1 {
			t.Errorf("200 ask for one generation, which is read %d times", n)
		}
		gone, leave := context.WithCancel(t.Context())
		for range 20 {
			fetch(gone, 13)
		}
		if n := asked(); n != 2 {
			t.Errorf("%d are read, want 2", n)
		}
		for g := assignment.Generation(14); g < 39; g++ {
			others = append(others, fetch(t.Context(), g))
		}
		if n := asked(); n != readers {
			t.Errorf("%d are read at once, want %d", n, readers)
		}
		leave()
		if n := asked(); n != readers+1 {
			t.Errorf("%d have been read after one is not wanted any more, want %d", n, readers+1)
		}
		close(m.hold)
		for i, stream := range append(same, others...) {
			want := all[2]
			if i >= len(same) {
				want = all[i-len(same)+4]
			}
			got, _, err := received(stream)
			if err != nil {
				t.Fatal(err)
			}
			if got.Checksum() != want.Checksum() {
				t.Fatalf("%v, want generation %d", got, want.Generation())
			}
		}
		synctest.Wait()
		j, err := s.acquire("web", "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.release(j)
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.olders) > 0 {
			t.Errorf("%d are kept that are not sent any more", len(j.olders))
		}
	})
}
