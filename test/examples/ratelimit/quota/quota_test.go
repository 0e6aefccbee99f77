package quota

import (
	"math"
	"testing"
	"time"
)

func TestValid(t *testing.T) {
	for _, l := range []Limit{{0, 1}, {-1, 1}, {math.NaN(), 1}, {2e9, 1}, {1, 0}, {1, math.Inf(1)}} {
		if l.Validate() == nil {
			t.Errorf("%+v is a limit", l)
		}
	}
	l := Limit{10, 5}
	if err := l.Validate(); err != nil {
		t.Error(err)
	}
	for _, r := range []Report{{}, {Limit: l, Demand: -1}, {Limit: l, Demand: math.NaN()}, {Limit: l, Rate: -1}, {Limit: l, Tokens: math.Inf(-1)}} {
		if r.Valid() {
			t.Errorf("%+v is a report", r)
		}
	}
	for _, a := range []Answer{{Rate: -1}, {Cap: math.Inf(1)}, {Tokens: math.NaN()}} {
		if a.Valid() {
			t.Errorf("%+v is an answer", a)
		}
	}
}

// A request that counts for more than a Share holds is let in when that is full.
func TestCost(t *testing.T) {
	s := NewShare(0, Limit{100, 100}, 20, time.Minute)
	if !s.Allow(0, 50) || s.Allow(0, 1) {
		t.Error("want 50 of 5 tokens, and no more")
	}
	if s.Allow(9*time.Second, 1) { // 45 are owed, at 5 a second
		t.Error("the debt is forgotten")
	}
	if !s.Allow(9400*time.Millisecond, 1) {
		t.Error("the debt is not paid in time")
	}
	if s.Allow(time.Hour, 101) {
		t.Error("more than the burst is let in")
	}
}

// A Share that nothing is asked of gives its part back, and is forgotten when it is full.
func TestSteps(t *testing.T) {
	b, s := NewBucket(0, Limit{10, 10}, 0), NewShare(0, Limit{10, 10}, 10, time.Minute)
	report := func(now time.Duration) { s.Answer(now, b.Report(now, 1, s.Report(now))) }
	s.Allow(0, 1)
	if got := s.Next(0); got != Send {
		t.Errorf("%d after a request, want Send", got)
	}
	report(0)
	if got := s.Next(Interval); got != Wait {
		t.Errorf("%d without a request, want Wait", got)
	}
	if got := s.Next(IdleAfter); got != Send {
		t.Errorf("%d when idle, want Send", got)
	}
	report(IdleAfter)
	if r := s.Report(IdleAfter); r.Rate != 0 || r.Demand != 0 {
		t.Errorf("%+v after the part was given back", r)
	}
	if got := s.Next(time.Minute); got != Forget || !b.Idle(time.Minute) {
		t.Errorf("%d in the end, want Forget, and an idle bucket", got)
	}
}

// What is known of a limit is the same at its next owner, whatever has been reported there.
func TestMerge(t *testing.T) {
	const shares = 3
	l := Limit{100, 50}
	old, all := NewBucket(0, l, 0), [shares]Share{}
	now := time.Duration(0)
	turn := func(b *Bucket, i int) { all[i].Answer(now, b.Report(now, uint64(i), all[i].Report(now))) }
	for i := range all {
		all[i] = NewShare(0, l, shares, time.Minute)
	}
	for ; now < 5*time.Second; now += 10 * time.Millisecond {
		for i := range all {
			all[i].Allow(now, 1)
			if int(now/time.Millisecond)%500 == 100*i {
				turn(&old, i)
			}
		}
	}
	state := old.State(now)
	if !state.Valid() {
		t.Fatalf("%+v is no state", state)
	}
	same := NewBucket(now, l, 0)
	same.Merge(now, state)
	if got := same.State(now); got.Level != state.Level || len(got.Shares) != shares {
		t.Errorf("%+v, want %+v", got, state)
	}
	// One Share reports to the next owner before what the last one knew is there.
	next := NewBucket(now, l, now+LearnFor)
	before := all[0].rate
	used := all[0].total
	for _, h := range state.Shares {
		if h.Session == 0 {
			used -= h.Total
		}
	}
	turn(&next, 0)
	if all[0].rate != before {
		t.Errorf("the part changes from %g to %g while the owner learns", before, all[0].rate)
	}
	next.Merge(now, state)
	if got := next.State(now); math.Abs(got.Level-(state.Level-float64(used))) > 1e-6 || len(got.Shares) != shares {
		t.Errorf("level %g and %d shares, want %g less %d and %d", got.Level, len(got.Shares), state.Level, used, shares)
	}
}

// Nothing that a Share can say makes a Bucket lend what is not there, or what is no number.
func FuzzBucket(f *testing.F) {
	f.Add(100., 10., 50., 20., 3., uint64(5), uint64(5), int64(1e9))
	f.Add(1e-3, 1., 1e12, 1e12, -1e12, uint64(1)<<63, uint64(0), int64(0))
	f.Fuzz(func(t *testing.T, rate, burst, demand, lent, tokens float64, total, fresh uint64, gap int64) {
		r := Report{Limit: Limit{rate, burst}, Demand: demand, Rate: lent, Tokens: tokens, Total: total, Fresh: fresh}
		if !r.Valid() || gap < 0 || gap > int64(time.Hour) {
			return
		}
		b := NewBucket(0, r.Limit, 0)
		good := Report{Limit: r.Limit, Demand: rate, Total: 1, Fresh: 1}
		for i := range 6 {
			now := time.Duration(i) * time.Duration(gap)
			b.Report(now, 2, r)
			a := b.Report(now, 1, good)
			if !a.Valid() || a.Rate > rate*(1+1e-9) {
				t.Fatalf("%+v of %g a second", a, rate)
			}
			if s := b.State(now); !s.Valid() {
				t.Fatalf("%+v", s)
			}
		}
	})
}
