package overload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// TestHeavyKeys holds the parts against those that filling up all keys alike gives.
func TestHeavyKeys(t *testing.T) {
	for _, c := range []struct {
		name          string
		asked, served float64
		keys          []KeyRate
		keep          map[assignment.SliceKey]float64
	}{
		{"room for all", 50, 50, []KeyRate{{1, 40}}, nil},
		{"nothing is served", 50, 0, []KeyRate{{1, 40}}, nil},
		{"one key", 525, 50, []KeyRate{{1, 500}}, map[assignment.SliceKey]float64{1: .04}},
		{"two, of which one asks for little more", 125, 100, []KeyRate{{2, 20}, {1, 60}}, map[assignment.SliceKey]float64{1: 25. / 60}},
		{"two", 130, 100, []KeyRate{{2, 45}, {1, 60}}, map[assignment.SliceKey]float64{1: 32.5 / 60, 2: 32.5 / 45}},
		{"it is the others", 500, 50, []KeyRate{{1, 20}}, nil},
		{"no keys", 500, 50, nil, nil},
		{"no numbers", math.NaN(), 50, []KeyRate{{1, math.NaN()}}, nil},
		{"a key of no rate", 500, 50, []KeyRate{{1, math.NaN()}, {2, 480}}, map[assignment.SliceKey]float64{2: 25. / 480}},
	} {
		h := NewHeavyKeys(c.asked, c.served, c.keys)
		if (h == nil) != (c.keep == nil) || h != nil && len(h.keys) != len(c.keep) {
			t.Errorf("%s: %+v, want %v", c.name, h, c.keep)
			continue
		}
		for k := range assignment.SliceKey(4) {
			want, heavy := c.keep[k]
			if !heavy {
				want = 1
			}
			for base := Priority(0); base < Priorities; base += Cohorts {
				same := 0
				for at := range Priority(Cohorts) {
					switch r := h.Rank(base+at, k); {
					case r == base+max(at, 1):
						same++
					case r != base && h != nil:
						t.Fatalf("%s: key %d, priority %d ranks as %d", c.name, k, base+at, r)
					}
				}
				if got := float64(same) / Cohorts; math.Abs(got-want) > .02 {
					t.Errorf("%s: of key %d %.2f rank as they are, want %.2f", c.name, k, got, want)
				}
			}
		}
	}
	many := make([]KeyRate, 40)
	for i := range many {
		many[i] = KeyRate{assignment.SliceKey(i), 10}
	}
	if h := NewHeavyKeys(400, 390, many); h != nil && len(h.keys) > maxHeavy {
		t.Errorf("%d heavy keys", len(h.keys))
	}
}

// TestHeavyKeysFit: a heavy key's requests rank last only within criticalities for which there is no room,
// whatever is full.
func TestHeavyKeysFit(t *testing.T) {
	mix := [CriticalPlus]float64{.2, .2, .5, .1}
	for _, x := range []struct {
		times float64
		last  []Criticality // in which the heavy key's rank last
	}{
		{1.4, []Criticality{Sheddable, SheddablePlus}},
		{1.2, []Criticality{Sheddable}},
		{3, []Criticality{Sheddable, SheddablePlus, Critical}},
		{12, []Criticality{Sheddable, SheddablePlus, Critical, CriticalPlus}},
	} {
		for full, seen := range map[string]Seen{
			"CPU":      {Busy: Tick, Starts: 10, Computed: Tick, Waiting: 5},
			"handlers": {Ended: 10, Missed: 2, UnderWay: 40, Worked: 2 * time.Second},
			"a signal": {Signal: x.times},
		} {
			var p Pacer
			var l *Limits
			for range 200 {
				var asked [Priorities]uint32
				for c, part := range mix {
					asked[Labels{Criticality: Sheddable + Criticality(c)}.Priority()] = uint32(math.Round(10 * x.times * part))
					seen.Arrived[c] = int(math.Round(10 * x.times * part))
				}
				seen.Over, seen.Asked = Tick, &asked
				l = p.Tick(seen)
			}
			h := l.HeavyKeys(200*x.times, 200, []KeyRate{{1, 200*x.times - 50}})
			var last []Criticality
			for c := Sheddable; c <= CriticalPlus; c++ {
				base := Priority(c-Sheddable) * Cohorts
				if low := h.Rank(base+1, 1); low == base {
					last = append(last, c)
				} else if low != base+1 {
					t.Errorf("priority %d ranks as %d", base+1, low)
				}
				if h.Rank(base+1, 2) != base+1 {
					t.Error("another key ranks last")
				}
			}
			if !slices.Equal(last, x.last) {
				t.Errorf("%s is full, %v times as much is asked for: a heavy key's requests rank last within %v, want %v", full, x.times, last, x.last)
			}
		}
	}
}

// TestHeavyKeySignal: a signal says that the task is too full, and one key asks for most. Those beside
// it go on being served, and of it what the signal leaves: what is refused since the signal says so is
// not taken for more than the task can do, or there would be ever less that it can.
func TestHeavyKeySignal(t *testing.T) {
	const hot, light, signal, windows = 200, 20, 1.8, 60 // a second, and of one
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var p Pacer
		var h *HeavyKeys
		l := new(Limits)
		var asked, served [2]float64
		for range windows {
			var come, let [2]float64
			for range time.Second / Tick {
				var by [Priorities]uint32
				s := Seen{Over: Tick, Asked: &by, Signal: signal, HeavyKeys: h != nil}
				for next := rng.ExpFloat64(); next < (hot+light)*Tick.Seconds(); next += rng.ExpFloat64() {
					labels, key := Labels{Criticality: Critical}, bit(rng.Float64() < hot/float64(hot+light))
					labels.SetCohort(rng.IntN(Cohorts))
					at := h.Rank(labels.Priority(), assignment.SliceKey(key))
					by[at]++
					s.Arrived[Critical-Sheddable]++
					if come[key]++; l.Admit(at, Queue{}, 0) == Served {
						let[key]++
					}
				}
				l = p.Tick(s)
			}
			for i := range come {
				asked[i], served[i] = asked[i]+come[i], served[i]+let[i]
			}
			if now := l.HeavyKeys(come[0]+come[1], let[0]+let[1], []KeyRate{{1, come[1]}, {0, come[0]}}); now != nil {
				h = now
			}
		}
		beside, of, all := served[0]/asked[0], served[1]/asked[1], (served[0]+served[1])/(asked[0]+asked[1])
		t.Logf("seed %d: beside it %.3f are served, of the key %.3f, of all %.3f, where the signal leaves %.3f", seed, beside, of, all, 1/signal)
		// In the first window it is not known which key it is.
		if beside < .95 || all < .85/signal || all > 1.05/signal {
			t.Errorf("want .95 beside it, and of all .85 to 1.05 times what the signal leaves")
		}
	}
}

// TestHeavyKeyParts: the parts are of the least of what the signal, handlers, and the CPU leave.
func TestHeavyKeyParts(t *testing.T) {
	const asked, served, hot = 100., 20., 90.
	for _, c := range []struct {
		l      Limits
		serves float64
	}{
		{Limits{}, served},
		{Limits{signal: 1}, served},
		{Limits{signal: .5, Spacing: 50 * time.Millisecond}, served},
		{Limits{signal: .5, can: 30}, 30},
		{Limits{signal: 2}, 50},
		{Limits{signal: 2, can: 30}, 30},
		{Limits{signal: 2, can: 70, Spacing: 40 * time.Millisecond}, 25},
		{Limits{signal: 2, can: 70, Spacing: time.Millisecond}, 50},
		{Limits{signal: mostFull}, 0},
	} {
		h, want := c.l.HeavyKeys(asked, served, []KeyRate{{1, hot}}), partOf*c.serves-(asked-hot)
		switch {
		case want < 0:
			if h != nil {
				t.Errorf("signal %v, handlers %v, CPU %v: parts %v, want none", c.l.signal, c.l.can, c.l.Spacing, h.keep)
			}
		case h == nil || math.Abs(h.keep[0]-want/hot) > 1e-9:
			t.Errorf("signal %v, handlers %v, CPU %v: parts %+v, want %v", c.l.signal, c.l.can, c.l.Spacing, h, want/hot)
		}
	}
}
