package autosharding

import (
	"fmt"
	"slices"
	"strings"
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
	if got.Generation != int64(a.Generation()) || len(got.Slices) != a.NumSlices()+2 {
		t.Fatalf("generation %d of %d slices, want %d of %d", got.Generation, len(got.Slices), a.Generation(), a.NumSlices()+2)
	}
	for i, n := range got.Sizes {
		if n >= 1<<20 {
			t.Errorf("message %d is of %d bytes", i, n)
		}
	}
	i := 1
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
	if err != nil || len(filled) != a.NumSlices()+2 || len(remarks) != 0 {
		t.Fatalf("filled to %d slices with remarks %q, %v; want what was sent and none", len(filled), remarks, err)
	}
	last := filled[len(filled)-1]
	if filled[0].Start != "" || filled[0].Gap || *filled[0].End != "0000000000000000" || len(filled[0].Endpoints) > 0 ||
		last.Start != "8000000000000000" || last.Gap || last.End != nil || len(last.Endpoints) > 0 {
		t.Errorf("the ends are %+v and %+v", filled[0], last)
	}
	for _, raw := range []string{"", "-1", "/users/7", "alice", "9", "\xff"} {
		if len(autoshardingtest.Lookup(filled, raw).Endpoints) > 0 {
			t.Errorf("the raw key %q has an owner", raw)
		}
	}
}

func address(t assignment.Task) string { return t.Address }

var addresses = []naming{address}

// TestAliases: each owner of a slice is there by all of its names.
func TestAliases(t *testing.T) {
	a := makeAssignment(t, baseGen, 20, 300, true)
	st := newStand(t, Config{Endpoint: "address,/address,web.example/address"})
	st.f.set(a, nil)
	got := st.next(st.watch("u", 0))
	filled, remarks, err := got.Fill()
	if err != nil || len(remarks) > 0 {
		t.Fatalf("%q, %v", remarks, err)
	}
	for s, r := range a.All() {
		var want, names []string
		for task := range r.All() {
			want = append(want, task.Address, "/"+task.Address, "web.example/"+task.Address)
		}
		for _, e := range autoshardingtest.Lookup(filled, s.Start.String()).Endpoints {
			names = append(names, got.Endpoints[e])
		}
		if !slices.Equal(names, want) {
			t.Fatalf("slice %s has %q, want %q", s, names, want)
		}
	}
}

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
	msgs := encode(a, []naming{address, func(t assignment.Task) string { return t.Name }})
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
	long := strings.Repeat("x", 300)
	for value, want := range map[string][]string{
		"": {"10.0.0.3:80"}, "address": {"10.0.0.3:80"}, "name": {"web-3"}, "name.web.default.svc": {"web-3.web.default.svc"},
		"/address": {"/10.0.0.3:80"}, "web.example/address": {"web.example/10.0.0.3:80"},
		"name,address": {"web-3", "10.0.0.3:80"}, "name,address,/address,a/address": {"web-3", "10.0.0.3:80", "/10.0.0.3:80", "a/10.0.0.3:80"},
		"host": nil, "name.": nil, "name.a b": nil, "Name": nil, ",": nil, "name,": nil, "name,name": nil, "a b/address": nil, "/": nil,
		long + "/address": nil, "name,address,/address,a/address,b/address": nil,
	} {
		all, err := namings("Endpoint", value)
		var got []string
		for _, n := range all {
			got = append(got, n(task))
		}
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
	if _, err := New(Config{Endpoint: "host"}); err == nil {
		t.Error("an endpoint that is not allowed was taken")
	}
}
