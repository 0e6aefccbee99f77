package slicertest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// at is the tasks that own a key, without thought for speed.
func (p placement) at(k assignment.SliceKey) (tasks []string) {
	for _, c := range p {
		if c.start <= k {
			tasks = c.tasks
		}
	}
	return tasks
}

// Places say what they say, and nothing of other keys, in any order.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few positions, so that slices meet and overlap.
		edge := rapid.SampledFrom([]assignment.SliceKey{0, 1, 2, 1 << 40, 1<<40 + 1, 1 << 62, assignment.KeyspaceEnd - 1, assignment.KeyspaceEnd})
		tasks := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID[string])
		p := spread([]string{"a", "b"})
		for range rapid.IntRange(1, 10).Draw(t, "places") {
			s := assignment.Slice{Start: edge.Draw(t, "start"), End: edge.Draw(t, "end")}
			if s.Valid() != nil {
				continue
			}
			before, own := p, tasks.Draw(t, "tasks")
			p, _ = p.with([]Place{Slice(s, own...)})
			for _, k := range []assignment.SliceKey{0, 1, 2, 3, 1<<40 - 1, 1 << 40, 1<<40 + 1, 1<<40 + 2, 1<<62 - 1, 1 << 62, assignment.KeyspaceEnd - 1} {
				want := before.at(k)
				if s.Contains(k) {
					want = own
				}
				if fmt.Sprint(p.at(k)) != fmt.Sprint(want) {
					t.Fatalf("after %v at %v: %v is at %v, want %v", s, own, k, p.at(k), want)
				}
			}
			for i := range p[1:] {
				if p[0].start != 0 || p[i].start >= p[i+1].start {
					t.Fatalf("cells out of order: %v", p)
				}
			}
		}
		left := p.without("a", []string{"b", "c"})
		for _, k := range []assignment.SliceKey{0, 1 << 40, 1 << 62} {
			if got := left.at(k); len(got) == 0 || strings.Contains(fmt.Sprint(got), "a") {
				t.Errorf("%v is at %v without a", k, got)
			}
		}
	})
}

// What is not allowed is refused with its name.
func TestPlacesThatAreNotAllowed(t *testing.T) {
	for _, x := range []struct {
		places []Place
		want   string
	}{
		{nil, "places"},
		{[]Place{Key("k", "a")}, "first place"},
		{[]Place{Spread()}, "tasks"},
		{[]Place{Spread("a"), Slice(assignment.Slice{Start: 2, End: 2}, "a")}, "slice"},
		{[]Place{Spread("a b")}, "task name"},
		{[]Place{Spread("a"), Key("k", "a", "a")}, "owner"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, x.want) {
					t.Errorf("%v: %s, want something about %q", x.places, got, x.want)
				}
			}()
			Assignment("job", x.places...)
		}()
	}
}

func TestAssignment(t *testing.T) {
	a := Assignment("job", Spread("a", "b"), Key("k", "b", "a"), Key("l", "c"))
	owners := func(key string) (names []string) {
		for task := range a.Lookup(assignment.KeyOf(key)).All() {
			names = append(names, task.Name+" at "+task.Address)
		}
		return names
	}
	if got := fmt.Sprint(owners("k"), owners("l")); got != "[b at b.test:80 a at a.test:80] [c at c.test:80]" {
		t.Error(got)
	}
}
