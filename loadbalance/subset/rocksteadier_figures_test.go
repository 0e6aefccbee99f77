package subset

import (
	"slices"
	"testing"
)

// What the design requires of Rocksteadier, over the article's whole grid.

func TestRocksteadierUtilization(t *testing.T) {
	var all []float64
	var sum, sumWide float64
	wide := 0
	err := ArticleGrid().Utilization(Rocksteadier{}, func(m, n int, u float64) {
		all = append(all, u)
		sum += u
		if m >= 4*n {
			sumWide += u
			wide++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	atLeast := func(what string, got, want float64) {
		t.Logf("%s: %.4f", what, got)
		if got < want {
			t.Errorf("%s is %.4f, want at least %v", what, got, want)
		}
	}
	atLeast("mean utilization", sum/float64(len(all)), .942)
	atLeast("5th percentile of utilization", all[len(all)/20], .82)
	atLeast("mean utilization for M of 4N or more", sumWide/float64(wide), .975)
}

func TestRocksteadierBackendChurn(t *testing.T) {
	for _, c := range []struct {
		name      string
		grow      func(n int) int
		step      int // between values of N
		low, high float64
		most      int // connections of one frontend
	}{
		{"N to N+1", func(n int) int { return n + 1 }, 1, 0, .013, 2},
		{"N to 1.1N, nearest", func(n int) int { return (11*n + 5) / 10 }, 1, .09, .10, 20},
		{"N to 1.1N, exactly", func(n int) int { return 11 * n / 10 }, 10, .09, .10, 20},
		{"N to 2N", func(n int) int { return 2 * n }, 1, .48, .51, 20},
	} {
		var churn mean
		most := 0
		for n := 20; n <= 256; n += c.step {
			s := Shape{Frontends: 256, Backends: Dense(n), Size: 20}
			before := mustSubsets(t, Rocksteadier{}, s)
			s.Backends = Dense(c.grow(n))
			got := Compare(before, mustSubsets(t, Rocksteadier{}, s))
			churn.add(Stat{Mean: got.Mean, Worst: got.Worst})
			most = max(most, got.MostDropped)
		}
		got := churn.stat().Mean
		t.Logf("%s: mean %.4f, at most %d of one frontend", c.name, got, most)
		if got < c.low || got > c.high {
			t.Errorf("%s drops %.4f in the mean, want %v to %v", c.name, got, c.low, c.high)
		}
		if most > c.most {
			t.Errorf("%s drops %d connections of one frontend, want at most %d", c.name, most, c.most)
		}
	}
}

// Exactly no churn from M, at any step of the grid, and from k, at any size up
// to N.
func TestRocksteadierNoOtherChurn(t *testing.T) {
	for n := 20; n <= 256; n++ {
		s := Shape{Frontends: 256, Backends: Dense(n), Size: n}
		all := mustSubsets(t, Rocksteadier{}, s)
		var buf []int
		for m, order := range all {
			for _, k := range []int{1, 19, 20, 21, n / 2} {
				if k < 1 || k > n {
					continue
				}
				var err error
				buf, err = Rocksteadier{}.Append(buf[:0], Shape{Frontends: m + 1, Backends: s.Backends, Size: k}, m)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(buf, order[:k]) {
					t.Fatalf("M = %d, N = %d, k = %d: %v; with M = 256, k = N it begins %v", m+1, n, k, buf, order[:k])
				}
			}
		}
	}
}

func TestRocksteadierSpread(t *testing.T) {
	// Over all of the grid, and where a subset is at most half of the backends.
	for _, from := range []int{20, 40} {
		var spread mean
		for n := from; n <= 256; n++ {
			b := Dense(n)
			spread.add(Spread(mustSubsets(t, Rocksteadier{}, Shape{Frontends: 256, Backends: b, Size: 20}), b))
		}
		got := spread.stat()
		t.Logf("N from %d: spread %.4f, worst %.2f", from, got.Mean, got.Worst)
		if got.Mean > .19 {
			t.Errorf("N from %d: spread is %.4f, want at most .19", from, got.Mean)
		}
	}
}
