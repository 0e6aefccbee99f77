package backupdist

import (
	"testing"
	"testing/synctest"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What is read compressed is sent so, by Watch and by Fetch, and nothing else is.
func TestCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 1000)
		m.write(a)
		_, cc := start(t, m)
		reads := hello("web")
		reads.Compressed = true
		is, was := subscribe(t, cc, reads, nil), subscribe(t, cc, hello("web"), nil)
		is.expect(a, "compressed")
		was.expect(a, "whole")
		next := assigned(t, a, "web", 7, 11, 1000)
		m.write(next)
		is.expect(next, "compressed", "delta")
		was.expect(next, "whole", "delta")
		for _, compressed := range []bool{false, true} {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: "web", Compressed: compressed})
			if err != nil {
				t.Fatal(err)
			}
			got, tr, err := received(stream)
			if err != nil {
				t.Fatal(err)
			}
			if tr.WholeSize != 0 != compressed {
				t.Errorf("compressed %v: %v", compressed, tr)
			}
			if got.Checksum() != next.Checksum() {
				t.Errorf("compressed %v: %v", compressed, got)
			}
		}
	})
}
