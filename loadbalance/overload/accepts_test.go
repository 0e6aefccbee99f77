package overload_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// throttle is what there is to compare.
type throttle interface {
	holds(now time.Duration, p overload.Priority) bool // counts the request
	answered(now time.Duration, accepted bool)
}

// ours is overload.Accepts.
type ours struct{ overload.Accepts }

func (o *ours) holds(now time.Duration, p overload.Priority) bool {
	if o.Holds(now, p) {
		return true
	}
	o.Sent(now)
	return false
}

func (o *ours) answered(now time.Duration, accepted bool) { o.Answered(now, accepted) }

// book is that of Site Reliability Engineering, Equation 21-1, with counts that decay.
type book struct {
	requests, accepted float64
	at, fade           time.Duration
	rng                *rand.Rand
}

func (b *book) decay(now time.Duration) {
	keep := math.Exp(-float64(now-b.at) / float64(b.fade))
	b.requests, b.accepted, b.at = b.requests*keep, b.accepted*keep, now
}

func (b *book) holds(now time.Duration, _ overload.Priority) bool {
	b.decay(now)
	b.requests++
	return b.rng.Float64() < (b.requests-2*b.accepted)/(b.requests+1)
}

func (b *book) answered(now time.Duration, accepted bool) {
	if b.decay(now); accepted {
		b.accepted++
	}
}

type none struct{}

func (none) holds(time.Duration, overload.Priority) bool { return false }
func (none) answered(time.Duration, bool)                {}

// trial is one server, and clients of it. It accepts so many a second.
type trial struct {
	accepts   float64
	lag       time.Duration // until an answer is there
	cohort    func() int
	sent      func(cohort int)
	now       time.Duration
	room      float64
	rng       *rand.Rand
	throttles []throttle
	inFlight  []answer
}

type answer struct {
	at       time.Duration
	of       int
	accepted bool
}

// phase offers so many requests a second, and returns how many were asked for, sent, and
// accepted.
func (s *trial) phase(rate float64, over time.Duration) (asked, sent, accepted int) {
	for end := s.now + over; ; {
		step := time.Duration(s.rng.ExpFloat64() / rate * float64(time.Second))
		if s.now+step > end {
			s.room = min(s.room+s.accepts*(end-s.now).Seconds(), s.accepts/50+1)
			s.now = end
			return asked, sent, accepted
		}
		s.now += step
		s.room = min(s.room+s.accepts*step.Seconds(), s.accepts/50+1)
		for len(s.inFlight) > 0 && s.inFlight[0].at <= s.now {
			x := s.inFlight[0]
			s.inFlight = s.inFlight[1:]
			s.throttles[x.of].answered(max(x.at, s.now), x.accepted)
		}
		asked++
		var l overload.Labels
		cohort := s.cohort()
		l.SetCohort(cohort)
		of := s.rng.IntN(len(s.throttles))
		if s.throttles[of].holds(s.now, l.Priority()) {
			continue
		}
		sent++
		s.sent(cohort)
		ok := s.room >= 1
		if ok {
			s.room--
			accepted++
		}
		s.inFlight = append(s.inFlight, answer{s.now + s.lag, of, ok})
	}
}

func newTrial(accepts float64, clients int, lag time.Duration, make func(*rand.Rand) throttle) *trial {
	s := &trial{accepts: accepts, lag: lag, sent: func(int) {}, rng: rand.New(rand.NewPCG(1, 2))}
	s.cohort = func() int { return s.rng.IntN(overload.Cohorts) }
	for range clients {
		s.throttles = append(s.throttles, make(s.rng))
	}
	return s
}

// back is how long it takes until a client is served nearly all that it asks for.
func (s *trial) back(rate float64) time.Duration {
	const step = 250 * time.Millisecond
	for from := s.now; s.now-from < time.Minute; {
		asked, _, accepted := s.phase(rate, step)
		if float64(accepted) >= .98*float64(asked) {
			return s.now - from - step
		}
	}
	return time.Minute
}

func newOurs(*rand.Rand) throttle { return new(ours) }

// TestAcceptsFlood: at ten times what the server can do it refuses about one request for each
// that it serves, and is never without work; and after the flood all is served within 3 s.
// Beside it what the book's throttle does, which forgets what it has held back.
func TestAcceptsFlood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(*rand.Rand) throttle
	}{
		{"none", func(*rand.Rand) throttle { return none{} }},
		{"book, 120 s", func(r *rand.Rand) throttle { return &book{fade: 2 * time.Minute, rng: r} }},
		{"book, 3 s", func(r *rand.Rand) throttle { return &book{fade: 3 * time.Second, rng: r} }},
		{"ours", newOurs},
	} {
		for _, clients := range []int{1, 20} {
			for _, lag := range []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond} {
				if c.name != "ours" && lag != 10*time.Millisecond {
					continue
				}
				s := newTrial(400, clients, lag, c.make)
				s.phase(320, 10*time.Second)
				s.phase(4000, 5*time.Second)
				_, sent, accepted := s.phase(4000, 20*time.Second)
				perServed, goodput, back := float64(sent-accepted)/float64(accepted), float64(accepted)/8000, s.back(320)
				t.Logf("%s, %d clients, answers after %v: %.2f refused for each served, %.3f of what it can do, all served after %v", c.name, clients, lag, perServed, goodput, back)
				if c.name == "ours" && (perServed > 1.2 || goodput < .98 || back > 3*time.Second) {
					t.Error("is too bad")
				}
			}
		}
	}
}

// TestAcceptsRates: what is sent is about twice what is accepted, and a few to a server that
// accepts next to nothing, whatever the cohorts, and all where all is accepted; so the server
// has enough to do.
func TestAcceptsRates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ asked, accepts float64 }{{1000, 10_000}, {1000, 700}, {1000, 100}, {2000, 10}, {100, 1}, {1000, .01}, {5, 50}} {
		for name, cohort := range map[string]func(*trial) int{
			"all cohorts": func(s *trial) int { return s.rng.IntN(overload.Cohorts) },
			"the first":   func(*trial) int { return 0 },
			"the last":    func(*trial) int { return overload.Cohorts - 1 },
		} {
			s := newTrial(tc.accepts, 1, 5*time.Millisecond, newOurs)
			s.cohort = func() int { return cohort(s) }
			s.phase(tc.asked, 20*time.Second)
			_, sent, accepted := s.phase(tc.asked, 100*time.Second)
			if n, most := float64(sent)/100, min(tc.asked, 2*tc.accepts+8./3); n > 1.2*most {
				t.Errorf("%+v, %s: %.4g a second were sent, want at most %.4g", tc, name, n, most)
			}
			if could := min(tc.asked, tc.accepts); could >= 1 && float64(accepted)/100 < .6*could || could >= 100 && float64(accepted)/100 < .95*could {
				t.Errorf("%+v, %s: %.4g a second were accepted", tc, name, float64(accepted)/100)
			}
		}
	}
}

// TestAcceptsCohorts: the first cohorts are sent, and the last are not.
func TestAcceptsCohorts(t *testing.T) {
	t.Parallel()
	s := newTrial(1000, 1, 5*time.Millisecond, newOurs)
	var asked, sent [4]int // by quarters of the cohorts
	s.cohort = func() int {
		c := s.rng.IntN(overload.Cohorts)
		asked[c/32]++
		return c
	}
	s.sent = func(cohort int) { sent[cohort/32]++ }
	s.phase(4000, 20*time.Second)
	asked, sent = [4]int{}, [4]int{}
	s.phase(4000, 20*time.Second)
	for i, want := range []struct{ least, most float64 }{{.95, 1}, {.7, 1}, {0, .2}, {0, .1}} {
		if share := float64(sent[i]) / float64(asked[i]); share < want.least || share > want.most {
			t.Errorf("of quarter %d of the cohorts %.3f are sent, want %v", i, share, want)
		}
	}
}

// TestAcceptsOutage: a server that has refused all for a while is sent all again within a
// second, a flood that came before it or not.
func TestAcceptsOutage(t *testing.T) {
	t.Parallel()
	for _, lasts := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		s := newTrial(1000, 1, 20*time.Millisecond, newOurs)
		s.phase(800, 10*time.Second)
		s.accepts, s.room = 0, 0
		s.phase(800, lasts)
		s.accepts = 1000
		if back := s.back(800); back > 1500*time.Millisecond {
			t.Errorf("after %v all was served after %v", lasts, back)
		}
	}
}

// TestAcceptsSlow: requests that take long to be answered, as streams do, are not held back
// where few are refused.
func TestAcceptsSlow(t *testing.T) {
	t.Parallel()
	var a overload.Accepts
	for i := range 10_000 {
		now := time.Duration(i) * 10 * time.Millisecond
		if a.Holds(now, 0) {
			t.Fatalf("held back after %v", now)
		}
		if a.Sent(now); i%10 == 0 {
			a.Answered(now, false)
		}
	}
}

// TestAcceptsQuiet: what is not asked for any more, or refused, need not be counted.
func TestAcceptsQuiet(t *testing.T) {
	t.Parallel()
	var a overload.Accepts
	for range 1000 {
		a.Sent(0)
		a.Answered(0, false)
	}
	if a.Quiet(0) || !a.Holds(0, overload.Priorities-1) {
		t.Error("nothing is known of a server that has refused all")
	}
	if !a.Quiet(time.Minute) || a.Holds(time.Minute, 0) {
		t.Error("something is remembered after a minute")
	}
	for range 100_000 {
		a.Sent(time.Second)
		a.Answered(time.Second, true)
	}
	if !a.Quiet(time.Second) || a.Holds(time.Second, 0) {
		t.Error("nearly all was accepted")
	}
}
