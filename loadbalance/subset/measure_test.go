package subset

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

func TestUtilization(t *testing.T) {
	for _, c := range []struct {
		rows [][]int
		b    Backends
		want float64
	}{
		{nil, Dense(3), 1},
		{[][]int{{}}, Dense(3), 1},
		{[][]int{{0, 1}, {1, 2}}, Dense(3), 1},              // ceil(4/3) of 2
		{[][]int{{0, 1}, {1, 0}}, Dense(4), .5},             // 1 of 2
		{[][]int{{0, 1}, {1, 0}, {1, 2}}, Dense(3), 2. / 3}, // 2 of 3
		{[][]int{{0}}, Dense(100), 1},
	} {
		if got := Utilization(c.rows, c.b); !near(got, c.want) {
			t.Errorf("utilization of %v among %d is %v, want %v", c.rows, c.b.Len(), got, c.want)
		}
	}
	holes, err := Present([]int{0, 2, 5})
	if err != nil {
		t.Fatal(err)
	}
	if got := Connections([][]int{{0, 2, 3, -1, 9}, {2}}, holes); !slices.Equal(got, []int{1, 0, 2, 0, 0, 0}) {
		t.Errorf("connections %v", got)
	}
	if got := Utilization([][]int{{0, 2}, {2}}, holes); !near(got, .5) {
		t.Errorf("utilization with holes %v, want .5", got)
	}
}

func TestDistinct(t *testing.T) {
	rows := [][]int{{0, 1}, {1, 0}, {0}, {2, 1}, {0, 1}}
	if got := Distinct(rows); got != 3 {
		t.Errorf("distinct %d, want 3", got)
	}
	if rows[1][0] != 1 {
		t.Error("Distinct sorted its argument")
	}
	if got := Distinct(nil); got != 0 {
		t.Errorf("distinct of none %d", got)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rows [][]int
		n    int
		want Stat
	}{
		{nil, 30, Stat{}},
		{[][]int{{}}, 30, Stat{}},
		{[][]int{{2, 0, 1, 3}}, 30, Stat{.75, .75}},                             // three in a window
		{[][]int{{29, 0, 1, 15}}, 30, Stat{.5, .5}},                             // no wrap
		{[][]int{{0, 10}, {3, 4}}, 30, Stat{.75, 1}},                            // mean and worst
		{[][]int{{0, 1, 2, 3}}, 31, Stat{1, 1}},                                 // ceil(31/10) = 4
		{[][]int{{0, 3, 6, 9}, {0, 3, 6}}, 10, Stat{(1./4 + 1./3) / 2, 1. / 3}}, // window of 1
	} {
		got := Spread(c.rows, Dense(c.n))
		if !near(got.Mean, c.want.Mean) || !near(got.Worst, c.want.Worst) {
			t.Errorf("spread of %v among %d is %v, want %v", c.rows, c.n, got, c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after [][]int
		want          Churn
	}{
		{"nothing", nil, nil, Churn{}},
		{"order is no churn", [][]int{{0, 1}}, [][]int{{1, 0}}, Churn{Frontends: 1, Held: 2}},
		{"one of two", [][]int{{0, 1}, {2, 3}}, [][]int{{0, 9}, {3, 2}},
			Churn{Frontends: 2, Held: 4, Dropped: 1, Opened: 1, MostDropped: 1, Mean: .25, Worst: .5}},
		{"a task of another frontend", [][]int{{0}, {1}}, [][]int{{0}, {0}},
			Churn{Frontends: 2, Held: 2, Dropped: 1, Opened: 1, MostDropped: 1, Mean: .5, Worst: 1}},
		{"frontends that come or go", [][]int{{0}, {1}}, [][]int{{0}}, Churn{Frontends: 1, Held: 1}},
		{"k shrinks", [][]int{{0, 1, 2, 3}}, [][]int{{0, 2}},
			Churn{Frontends: 1, Held: 4, Dropped: 2, MostDropped: 2, Mean: .5, Worst: .5}},
		{"k grows", [][]int{{0}}, [][]int{{0, 2}}, Churn{Frontends: 1, Held: 1, Opened: 1}},
	} {
		if got := Compare(c.before, c.after); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Subsets is Append for each frontend, and the rows cannot grow into each other.
func TestSubsets(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, r *rand.Rand) {
		q, b := randomAsk(r)
		s := Shape{Frontends: 1 + r.IntN(50), Backends: b, Size: q.k}
		for _, a := range variants() {
			rows := mustSubsets(t, a, s)
			if len(rows) != s.Frontends {
				t.Fatalf("%s: %d rows, want %d", label(a), len(rows), s.Frontends)
			}
			for m, row := range rows {
				if want := mustAppend(t, a, s, m); !slices.Equal(row, want) || cap(row) != len(row) {
					t.Fatalf("%s: frontend %d has %v (capacity %d), want %v", label(a), m, row, cap(row), want)
				}
			}
		}
	})
}

// The grid's running count agrees with measuring every scenario by itself.
func TestGridUtilization(t *testing.T) {
	g := Grid{Size: 4, MinBackends: 3, MaxBackends: 12, MaxFrontends: 9}
	for _, a := range Algorithms() {
		visited := map[[2]int]bool{}
		err := g.Utilization(a, func(m, n int, u float64) {
			s := Shape{Frontends: m, Backends: Dense(n), Size: g.Size}
			if want := Utilization(mustSubsets(t, a, s), s.Backends); !near(u, want) {
				t.Errorf("%s: M = %d, N = %d: %v, want %v", a.Name(), m, n, u, want)
			}
			visited[[2]int{m, n}] = true
		})
		if err != nil {
			t.Fatal(err)
		}
		for m := 1; m <= 9; m++ {
			for n := 3; n <= 12; n++ {
				if got, want := visited[[2]int{m, n}], m*4 > n; got != want {
					t.Errorf("%s: M = %d, N = %d visited: %v", a.Name(), m, n, got)
				}
			}
		}
	}
}

// A grid too small to have a case of some measure gives zeros for it.
func TestGridSummarizeSmall(t *testing.T) {
	got, err := Grid{Size: 1, MinBackends: 1, MaxBackends: 1, MaxFrontends: 2}.Summarize(RoundRobin{})
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Scenarios: 1, Utilization: 1, Utilization5th: 1, UtilizationMin: 1, DistinctMin: 1, DistinctMax: 1,
		BackendChurn: Stat{.5, 1}}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
