package autosharding

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/autosharding/autoshardingtest"
	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
)

// wantSame checks what was sent against the assignment: every slice as it is, from
// key 0 to the end, and nothing outside.
func wantSame(t testing.TB, got *autoshardingtest.Assignment, a *assignment.Assignment, name func(assignment.Task) string) {
	t.Helper()
	if got.Generation != int64(a.Generation()) || len(got.Slices) != a.NumSlices() {
		t.Fatalf("generation %d of %d slices, want %d of %d", got.Generation, len(got.Slices), a.Generation(), a.NumSlices())
	}
	for i, n := range got.Sizes {
		if n >= 1<<20 {
			t.Errorf("message %d is of %d bytes", i, n)
		}
	}
	i := 0
	for s, r := range a.All() {
		g := got.Slices[i]
		var want, names []string
		for task := range r.All() {
			want = append(want, name(task))
		}
		for _, e := range g.Endpoints {
			names = append(names, got.Endpoints[e])
		}
		if g.Start != s.Start.String() || g.End == nil || *g.End != s.End.String() || !slices.Equal(names, want) {
			t.Fatalf("slice %d is %+v with %q, want %s with %q", i, g, names, s, want)
		}
		i++
	}
	filled, remarks, err := got.Fill()
	if err != nil || len(filled) != a.NumSlices()+2 || len(remarks) != 2 {
		t.Fatalf("filled to %d slices with remarks %q, %v; want a gap before key 0 and one after the last", len(filled), remarks, err)
	}
	last := filled[len(filled)-1]
	if filled[0].Start != "" || !filled[0].Gap || *filled[0].End != "0000000000000000" ||
		last.Start != "8000000000000000" || !last.Gap || last.End != nil {
		t.Errorf("the ends are %+v and %+v", filled[0], last)
	}
	for _, raw := range []string{"", "-1", "/users/7", "alice", "9", "\xff"} {
		if !autoshardingtest.Lookup(filled, raw).Gap {
			t.Errorf("the raw key %q has an owner", raw)
		}
	}
}

func address(t assignment.Task) string { return t.Address }

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		tasks, slices int
		replicas      bool
		chunks        int
	}{
		{1, 1, false, 1}, {3, 10, true, 1}, {1000, 100_000, false, 5}, {500, 30_000, true, 2}, {100_000, 10, false, 2},
	} {
		t.Run(fmt.Sprintf("tasks=%d,slices=%d,replicas=%v", c.tasks, c.slices, c.replicas), func(t *testing.T) {
			a := makeAssignment(t, baseGen, c.tasks, c.slices, c.replicas)
			st := newStand(t, Config{})
			st.f.set(a, nil)
			client := st.watch("u", 0)
			got := st.next(client)
			wantSame(t, got, a, address)
			if got.Chunks != c.chunks {
				t.Errorf("%d chunks, want %d", got.Chunks, c.chunks)
			}
			sum := 0
			for _, n := range got.Sizes {
				sum += n
			}
			t.Logf("%d chunks, %d bytes, %.1f a slice", got.Chunks, sum, float64(sum)/float64(c.slices))
		})
	}
}

// What is written out by hand is what generated code would write.
func TestEncodeIsWhatGeneratedCodeWrites(t *testing.T) {
	a := makeAssignment(t, baseGen, 200, 5000, true)
	msgs := encode(a, address)
	for i, b := range msgs {
		var m autoshardingv1.WatchShardingAssignmentResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if len(m.ProtoReflect().GetUnknown()) > 0 || (m.GetMetadata() != nil) != (i == len(msgs)-1) || i < len(msgs)-1 && m.GetChunk() == nil {
			t.Errorf("message %d of %d is %v", i, len(msgs), m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().Get(0)))
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		// The order of fields within a chunk is free; their size is not.
		if len(again) != len(b) {
			t.Errorf("message %d is of %d bytes, generated code writes %d", i, len(b), len(again))
		}
	}
}

func TestEndpointNames(t *testing.T) {
	task := assignment.Task{Name: "web-3", Address: "10.0.0.3:80"}
	for value, want := range map[string]string{
		"": "10.0.0.3:80", "address": "10.0.0.3:80", "name": "web-3", "name.web.default.svc": "web-3.web.default.svc",
		"host": "", "name.": "", "name.a b": "", "Name": "",
	} {
		f, err := naming("Endpoint", value)
		if err == nil && f(task) != want || (err != nil) != (want == "") {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := New(Config{Endpoint: "host"}); err == nil {
		t.Error("an endpoint that is not allowed was taken")
	}
}
