package preference

import (
	"fmt"
	"slices"
	"testing"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment/store"
)

func candidates(n int, zones ...string) []store.Candidate {
	out := make([]store.Candidate, n)
	for i := range out {
		out[i] = store.Candidate{ID: fmt.Sprintf("assigner-%d", i), Address: fmt.Sprintf("h%d:1", i)}
		if len(zones) > 0 {
			out[i].Zone = zones[i%len(zones)]
		}
	}
	return out
}

func TestNobody(t *testing.T) {
	if c, ok := Choose(nil, "job", "zone"); ok {
		t.Fatalf("chose %v of none", c)
	}
}

func TestSameZoneComesFirst(t *testing.T) {
	all := candidates(9, "eu", "us", "asia")
	for i := range 200 {
		c, ok := Choose(all, fmt.Sprintf("job-%d", i), "us")
		if !ok || c.Zone != "us" {
			t.Fatalf("job %d: chose %+v", i, c)
		}
	}
	if _, ok := Choose(all, "job", "africa"); !ok {
		t.Fatal("a job in a zone without assigners has none")
	}
}

// An assigner without a zone is not near a job without one.
func TestEmptyZonesAreNotNear(t *testing.T) {
	all := []store.Candidate{{ID: "a"}, {ID: "b", Zone: "eu"}}
	seen := map[string]bool{}
	for i := range 100 {
		c, _ := Choose(all, fmt.Sprintf("job-%d", i), "")
		seen[c.ID] = true
	}
	if len(seen) != 2 {
		t.Fatalf("only %v are ever chosen", seen)
	}
}

func TestJobsSpread(t *testing.T) {
	const jobs, n = 3000, 6
	count := map[string]int{}
	for i := range jobs {
		c, _ := Choose(candidates(n), fmt.Sprintf("job-%d", i), "")
		count[c.ID]++
	}
	for id, got := range count {
		if got < jobs/n*8/10 || got > jobs/n*12/10 {
			t.Errorf("%s has %d of %d jobs, want about %d", id, got, jobs, jobs/n)
		}
	}
}

// Order does not matter, and who goes takes along only the jobs that it held.
func TestOnlyTheDeadOnesJobsMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := candidates(rapid.IntRange(2, 8).Draw(t, "n"), "a", "b")
		zone := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone")
		job := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "job")
		shuffled := rapid.Permutation(all).Draw(t, "order")
		best, _ := Choose(all, job, zone)
		if again, _ := Choose(shuffled, job, zone); again != best {
			t.Fatalf("%v in one order, %v in another", best, again)
		}
		gone := rapid.IntRange(0, len(all)-1).Draw(t, "gone")
		rest := slices.Delete(slices.Clone(all), gone, gone+1)
		next, ok := Choose(rest, job, zone)
		if !ok || all[gone] != best && next != best {
			t.Fatalf("%v was preferred, %v went, now it is %v", best, all[gone], next)
		}
	})
}
