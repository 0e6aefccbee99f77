package policy

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

func candidate(t *rapid.T) Candidate {
	return Candidate{
		Weight: rapid.OneOf(rapid.Float64Range(0, 10), rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1),
			math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64})).Draw(t, "weight"),
		Outstanding: rapid.Int64Range(0, 5).Draw(t, "outstanding"),
		InFlight:    rapid.SampledFrom([]float64{0, 3, -1, math.NaN(), math.Inf(1)}).Draw(t, "in flight"),
		Condition:   Condition(rapid.Uint8Range(0, uint8(Failing)+1).Draw(t, "condition")),
		Draining:    rapid.Bool().Draw(t, "draining"),
		InSubset:    rapid.Bool().Draw(t, "in subset"),
		Full:        rapid.Bool().Draw(t, "full"),
		Tried:       rapid.Bool().Draw(t, "tried"),
	}
}

// TestBestRank: whatever the candidates and the number, one of the best is chosen.
func TestBestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := List(rapid.SliceOfN(rapid.Custom(candidate), 0, 12).Draw(t, "candidates"))
		kind := Kind(rapid.Uint8Range(0, uint8(numKinds)).Draw(t, "kind"))
		i := Choose(kind, list, rapid.Uint64().Draw(t, "number"))
		if len(list) == 0 {
			if i != -1 {
				t.Fatalf("%d of none", i)
			}
			return
		}
		for j := range list {
			if list[j].Rank() < list[i].Rank() {
				t.Fatalf("chose %d of rank %d, and %d has %d", i, list[i].Rank(), j, list[j].Rank())
			}
		}
	})
}

// TestRankOrder holds Rank against the order in words.
func TestRankOrder(t *testing.T) {
	order := []Candidate{
		{Condition: Ready}, {Condition: Connecting}, {Condition: Idle},
		{Condition: Ready, Draining: true}, {Condition: Connecting, Draining: true}, {Condition: Idle, Draining: true},
		{Condition: Ready, Draining: true, Full: true}, {Condition: Failing, Full: true}, {Condition: Ready, Tried: true, Full: true},
	}
	last := -1
	for _, c := range order {
		c.InSubset = true
		in := c.Rank()
		c.InSubset = false
		out := c.Rank()
		if in <= last || out <= in || out >= Ranks {
			t.Errorf("%+v: ranks %d and %d after %d, of %d", c, in, out, last, Ranks)
		}
		last = out
	}
	for _, same := range [][2]Candidate{
		{{Condition: Failing}, {Condition: Failing, Draining: true}},
		{{Condition: Failing}, {Condition: Failing + 7}},
		{{Tried: true}, {Tried: true, Draining: true, Condition: Failing}},
	} {
		if same[0].Rank() != same[1].Rank() {
			t.Errorf("%+v and %+v differ", same[0], same[1])
		}
	}
}

// shares is how often each is chosen.
func shares(k Kind, list List) []float64 {
	const n = 200_000
	rng := rand.New(rand.NewPCG(1, uint64(k)))
	out := make([]float64, len(list))
	for turn := range uint64(n) {
		number := rng.Uint64()
		if k == RoundRobin {
			number = turn
		}
		out[Choose(k, list, number)] += 1. / n
	}
	return out
}

func TestShares(t *testing.T) {
	bad := Candidate{Condition: Failing, InSubset: true}
	good := func(weight float64, outstanding int64) Candidate {
		return Candidate{Weight: weight, Outstanding: outstanding, InSubset: true}
	}
	for _, test := range []struct {
		name string
		kind Kind
		list List
		want []float64
	}{
		{"turns", RoundRobin, List{good(0, 0), good(0, 9), good(5, 0)}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"turns past a failing one", RoundRobin, List{good(0, 0), bad, good(0, 9), good(5, 0)}, []float64{1. / 3, 0, 1. / 3, 1. / 3}},
		{"turns of the second best", RoundRobin, List{bad, {}, {}, bad}, []float64{0, .5, .5, 0}},
		{"equal load", LeastLoaded, List{good(0, 3), good(0, 3), good(0, 3), good(0, 3)}, []float64{.25, .25, .25, .25}},
		// Of the six pairs the lightest is in three, the next in two more.
		{"unequal load", LeastLoaded, List{good(0, 3), good(0, 2), good(0, 1), good(0, 0)}, []float64{0, 1. / 6, 2. / 6, 3. / 6}},
		{"load past failing ones", LeastLoaded, List{bad, bad, good(0, 2), bad, bad, good(0, 1), bad, good(0, 0)}, []float64{0, 0, 0, 0, 0, 1. / 3, 0, 2. / 3}},
		{"one of many", LeastLoaded, List{bad, bad, bad, good(0, 7), bad}, []float64{0, 0, 0, 1, 0}},
		{"two alike", WeightedLeastLoaded, List{good(0, 0), good(0, 0), bad}, []float64{.5, .5, 0}},
		{"the emptier", WeightedLeastLoaded, List{good(0, 3), good(0, 2), bad}, []float64{0, 1, 0}},
		{"the emptier for its weight", WeightedLeastLoaded, List{good(3, 3), good(1, 1), bad}, []float64{1, 0, 0}},
		{"what others send", WeightedLeastLoaded, List{{InSubset: true, InFlight: 4}, good(0, 0), bad}, []float64{0, 1, 0}},
		{"what others sent some time ago", WeightedLeastLoaded, List{{InSubset: true, InFlight: 4}, good(0, 1), bad}, []float64{1, 0, 0}},
		{"a task that has said nothing", WeightedLeastLoaded, List{good(2, 2), good(0, 1), good(2, 2)}, []float64{.5 / 3, 2. / 3, .5 / 3}},
		// Each pair is drawn by its weights, and is as full.
		{"pairs by weight", WeightedLeastLoaded, List{good(2, 0), good(1, 0), good(1, 0)}, []float64{.5, .25, .25}},
		{"one with nothing to do", WeightedLeastLoaded, List{good(3, 1), good(1, 0), bad}, []float64{0, 1, 0}},
		{"all that is too large to add up", WeightedLeastLoaded, List{good(math.MaxFloat64, 0), good(math.MaxFloat64, 0)}, []float64{.5, .5}},
		{"weights", Weighted, List{good(1, 0), good(3, 9), bad, good(4, 0)}, []float64{1. / 8, 3. / 8, 0, 4. / 8}},
		{"unknown weights are the mean", Weighted, List{good(1, 0), good(0, 0), good(3, 0), good(math.NaN(), 0)}, []float64{1. / 8, 2. / 8, 3. / 8, 2. / 8}},
		{"no weights", Weighted, List{good(0, 0), good(-1, 0), good(math.Inf(1), 0)}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"weights too large to add up", Weighted, List{good(math.MaxFloat64, 0), good(math.MaxFloat64, 0)}, []float64{.5, .5}},
		{"a mean too large to multiply", Weighted, List{good(math.MaxFloat64, 0), good(0, 0)}, []float64{.5, .5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := shares(test.kind, test.list)
			for i := range got {
				if math.Abs(got[i]-test.want[i]) > .01 || test.want[i] == 0 && got[i] > 0 {
					t.Fatalf("shares %.3f, want %.3f", got, test.want)
				}
			}
		})
	}
}

func TestNoAllocation(t *testing.T) {
	list := make(List, 10)
	for _, k := range []Kind{WeightedLeastLoaded, RoundRobin, LeastLoaded, Weighted} {
		number := uint64(0)
		if n := testing.AllocsPerRun(100, func() { number += 0x123456789abcdef1; Choose(k, list, number) }); n != 0 {
			t.Errorf("%s: %v allocations", k, n)
		}
	}
}

func TestKindNames(t *testing.T) {
	for _, k := range []Kind{WeightedLeastLoaded, RoundRobin, LeastLoaded, Weighted} {
		if got, err := ParseKind(k.String()); got != k || err != nil {
			t.Errorf("%v is read as %v, %v", k, got, err)
		}
	}
	_, err := ParseKind("random")
	var field *assignment.FieldError
	if !errors.As(err, &field) || Kind(77).String() != "unknown" {
		t.Error(err)
	}
}

func TestWeightOfReport(t *testing.T) {
	for _, test := range []struct {
		r    Report
		want float64
	}{
		{Report{Utilization: .5, Requests: 100}, 200},
		{Report{Utilization: 2, Requests: 100}, 50},
		{Report{Utilization: .5, Requests: 100, Errors: 50}, 100},
		{Report{Utilization: .5, Requests: 100, Errors: -50}, 200},
		{Report{Requests: 100}, 0},
		{Report{Utilization: .5}, 0},
		{Report{Utilization: math.NaN(), Requests: 1}, 0},
		{Report{Utilization: math.Inf(1), Requests: 1}, 0},
		{Report{Utilization: .5, Requests: math.Inf(1)}, 0},
	} {
		if got := test.r.Weight(); got != test.want {
			t.Errorf("%+v: %v, want %v", test.r, got, test.want)
		}
	}
}

func TestBlackoutAndExpiry(t *testing.T) {
	var u Utilization
	is := func(now time.Duration, want float64) {
		t.Helper()
		if got := u.Weight(now); got != want {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
	is(0, 0)
	u.Report(time.Second, Report{Utilization: .5, Requests: 50})
	is(time.Second+Blackout-1, 0)
	is(time.Second+Blackout, 100)
	u.Report(time.Minute, Report{Utilization: .5, Requests: 100})
	u.Report(time.Minute, Report{}) // says nothing
	is(time.Minute, 200)
	is(time.Minute+Expiry-1, 200)
	is(time.Minute+Expiry, 0)
	// It reports again: a new beginning.
	u.Report(time.Hour, Report{Utilization: .5, Requests: 100})
	is(time.Hour, 0)
	is(time.Hour+Blackout, 200)
	// With little to do what was known still holds.
	u.Report(time.Hour+time.Minute, Report{Utilization: leastUtilization / 2, Requests: 1})
	is(time.Hour+time.Minute+Expiry-1, 200)
	u.Report(2*time.Hour, Report{Utilization: leastUtilization / 2, Requests: 1})
	is(2*time.Hour+Blackout, 0)
	u.Report(3*time.Hour, Report{Utilization: leastUtilization / 2, Requests: 1, Errors: 1})
	if is(3*time.Hour, 0); u.Weight(3*time.Hour+Blackout) == 0 {
		t.Error("a task that fails says nothing as long as it has little to do")
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, k := range []Kind{WeightedLeastLoaded, RoundRobin, LeastLoaded, Weighted} {
		for _, n := range []int{2, 10} {
			b.Run(k.String()+"/"+string(rune('0'+n/10))+string(rune('0'+n%10)), func(b *testing.B) {
				list := make(List, n)
				for i := range list {
					list[i] = Candidate{InSubset: true, Weight: float64(i)}
				}
				number := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					number += 0x9e3779b97f4a7c15
					Choose(k, list, number)
				}
			})
		}
	}
}

// TestFailed: a task whose requests fail is chosen less, by how much the policy says, and where
// all fail alike none is.
func TestFailed(t *testing.T) {
	share := func(k Kind, failed ...float64) float64 {
		rng, n := rand.New(rand.NewPCG(1, uint64(k))), 0
		var l List
		for _, f := range failed {
			l = append(l, Candidate{InSubset: true, Failed: f})
		}
		const all = 100_000
		for range all {
			if Choose(k, l, rng.Uint64()) == 0 {
				n++
			}
		}
		return float64(n) / all
	}
	for _, c := range []struct {
		kind   Kind
		failed []float64
		want   float64
	}{
		{Weighted, []float64{.5, 0}, .25 / 1.25},
		{Weighted, []float64{1, 0}, leastChosen / (1 + leastChosen)},
		{Weighted, []float64{1, 1}, .5},
		{Weighted, []float64{.9, .9, .9, .9}, .25},
		{Weighted, []float64{.5, 0, 0, 0}, .25 / 3.25},
		{WeightedLeastLoaded, []float64{1, 0, 0}, 0},
		{WeightedLeastLoaded, []float64{1, 1, 1}, 1. / 3},
		{LeastLoaded, []float64{.2, 0}, leastChosen / 2},
		{LeastLoaded, []float64{.2, .2}, .5},
		{RoundRobin, []float64{1, 0}, .5},
	} {
		if got := share(c.kind, c.failed...); math.Abs(got-c.want) > .01 {
			t.Errorf("%s, failed %v: the first is chosen %.3f of the time, want %.3f", c.kind, c.failed, got, c.want)
		}
	}
}

// TestFailures: a few failures say little, many all, and they are forgotten.
func TestFailures(t *testing.T) {
	var f Failures
	now := time.Duration(0)
	add := func(n int, every time.Duration, failed bool) (share float64) {
		for range n {
			now += every
			share = f.Add(now, failed)
		}
		return share
	}
	if x := add(1, 0, true); x > .1 {
		t.Errorf("one failure: %v", x)
	}
	if x := add(1000, time.Millisecond, true); x < .95 {
		t.Errorf("a second of failures: %v", x)
	}
	if x := add(1000, 10*time.Millisecond, false); x > .05 {
		t.Errorf("ten seconds later: %v", x)
	}
	add(100, time.Millisecond, true)
	if x := f.Share(now + 20*time.Second); x > .3 {
		t.Errorf("twenty seconds without requests later: %v", x)
	}
	now += time.Minute
	if x := add(1, 0, false); x > .03 {
		t.Errorf("a minute without requests later: %v", x)
	}
}

// TestWeightsAtRest: what tasks with little to do report is mostly what they use without any
// request, so that weight would follow the requests that a task happens to get, and these the
// weight. Weights do not drift then, and are learnt as soon as there is enough to do.
func TestWeightsAtRest(t *testing.T) {
	const tasks, idle = 4, .02
	for _, c := range []struct {
		name        string
		rate, costs float64 // requests a second of all tasks, and what a task uses for one a second
		slow        float64 // by how much the first one's cost is higher
		least, most float64 // the first one's requests, to an equal share
	}{
		{"next to nothing to do", 400, .00001, 1, .8, 1.25},
		{"much to do", 400, .005, 1, .8, 1.25},
		{"much to do, one is slower", 400, .005, 2, .4, .7},
	} {
		for _, kind := range []Kind{WeightedLeastLoaded, Weighted} {
			rng := rand.New(rand.NewPCG(7, uint64(kind)))
			var known [tasks]Utilization
			worst, best := 1., 1.
			mean := [tasks]float64{}
			for second := range 600 {
				now := time.Duration(second) * time.Second
				l := make(List, tasks)
				for i := range l {
					l[i] = Candidate{InSubset: true, Weight: known[i].Weight(now)}
				}
				var got [tasks]float64
				for range int(c.rate) {
					got[Choose(kind, l, rng.Uint64())]++
				}
				for i := range got {
					cost := c.costs
					if i == 0 {
						cost *= c.slow
					}
					known[i].Report(now, Report{Utilization: idle + cost*got[i], Requests: got[i]})
					if mean[i] = mean[i]*.9 + got[i]*.1; second > 60 && i == 0 {
						share := mean[i] / (c.rate / tasks)
						worst, best = max(worst, share), min(best, share)
					}
				}
			}
			if c.slow > 1 {
				worst = best // it has less all the time
			}
			if worst > c.most || best < c.least {
				t.Errorf("%s, %s: the first task gets %.2f to %.2f of an equal share, want %v to %v", kind, c.name, best, worst, c.least, c.most)
			}
		}
	}
}

// TestFailedWeight: a task that fails is not believed that it can do more than others.
func TestFailedWeight(t *testing.T) {
	for _, k := range []Kind{WeightedLeastLoaded, Weighted} {
		list := List{{InSubset: true, Weight: 1e300, Failed: .9}, {InSubset: true, Weight: 100}, {InSubset: true, Weight: 200}}
		if got := shares(k, list)[0]; got > .3 || got == 0 {
			t.Errorf("%s: it gets %.3f", k, got)
		}
	}
}
