package overload_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Whatever tasks ask for, one after the other, the sums are those of what they asked for last,
// and what they get adds up to each limit.
func TestClaims(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := overload.NewClaims[int](100)
		last := make(map[int][]assignment.CustomerUse)
		name := func(i int) string { return fmt.Sprint("customer-", i) }
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			k := rapid.IntRange(0, 4).Draw(t, "task")
			var uses []assignment.CustomerUse
			var names []string
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 6, rapid.ID).Draw(t, "customers") {
				asked := float64(rapid.IntRange(0, 50).Draw(t, "asked"))
				uses = append(uses, assignment.CustomerUse{Customer: assignment.CustomerID(name(i)), Asked: asked, Used: asked / 2})
				names = append(names, name(i))
			}
			slices.SortFunc(uses, func(a, b assignment.CustomerUse) int { return cmp.Compare(a.Customer, b.Customer) })
			c.Set(k, uses, 1, names)
			last[k] = uses
		}
		asked, used := make(map[uint64]float64), make(map[uint64]float64)
		for _, uses := range last {
			for _, u := range uses {
				asked[u.Customer] += u.Asked
				used[u.Customer] += u.Used
			}
		}
		sum, names := c.Sum(100)
		if len(sum) != len(asked) || len(names) != len(asked) || c.Empty() != (len(asked) == 0) || len(c.Heaviest(3)) != min(3, len(asked)) {
			t.Fatalf("%d customers, %d named, want %d", len(sum), len(names), len(asked))
		}
		for _, u := range sum {
			if math.Abs(u.Asked-asked[u.Customer]) > 1e-9 || math.Abs(u.Used-used[u.Customer]) > 1e-9 {
				t.Fatalf("%+v, want %g and %g", u, asked[u.Customer], used[u.Customer])
			}
		}
		got := make(map[uint64]float64)
		for k := range 5 {
			shares := c.Shares(k, func(id uint64) (float64, bool) { return 60, id%2 == 0 })
			for _, s := range shares {
				got[s.Customer] += s.Share
			}
			for _, u := range last[k] {
				if x, ok := c.Claim(k, u.Customer); !ok || x != u {
					t.Fatalf("%+v, want %+v", x, u)
				}
			}
		}
		for _, id := range slices.Sorted(maps.Keys(asked)) {
			want := 60.
			if id%2 == 1 {
				want = 0
			}
			if math.Abs(got[id]-want) > 1e-9 {
				t.Fatalf("shares of %d add up to %g, want %g", id, got[id], want)
			}
		}
		for k := range 5 {
			c.Set(k, nil, 1, nil)
		}
		if !c.Empty() {
			t.Fatal("something is left")
		}
	})
}

func TestClaimsBounded(t *testing.T) {
	t.Parallel()
	c := overload.NewClaims[string](2)
	use := func(ids ...uint64) (uses []assignment.CustomerUse) {
		for _, id := range ids {
			uses = append(uses, assignment.CustomerUse{Customer: id, Asked: 1})
		}
		return uses
	}
	c.Set("a", use(1, 2, 3), 1, nil)
	c.Set("b", use(3, 4), 1, nil)
	if sum, _ := c.Sum(9); len(sum) != 2 {
		t.Errorf("%v", sum)
	}
	c.Set("a", use(3), 1, nil)
	c.Set("b", use(3, 4), 1, nil)
	if sum, _ := c.Sum(9); len(sum) != 2 || sum[0].Asked != 2 || sum[1].Asked != 1 {
		t.Errorf("%v", sum)
	}
}
