package quota

import (
	"math"
	"time"
)

// Share is one frontend's part of a limit.
type Share struct {
	limit     Limit
	frontends float64
	hold      time.Duration

	rate, cap, tokens float64
	at                time.Duration // when tokens was right
	until             time.Duration // when the part that the owner has lent ends, 0 if there is none
	shared            bool          // others have parts

	asked, demand float64 // since measured, and a second
	measured      time.Duration
	used          time.Duration // when something was last asked
	total         uint64

	sent               time.Duration // of the report that is on its way
	sentTotal, settled uint64        // total when it was sent, and when the last one that was answered was
}

// NewShare makes the Share of a frontend that has not heard of the limit's owner. Until
// it has it lets in as much as if all frontends, of which there are about so many, were
// asked equally, and so it does again when it has not heard of one for as long as hold.
func NewShare(now time.Duration, l Limit, frontends int, hold time.Duration) Share {
	s := Share{limit: l, frontends: max(1, float64(frontends)), hold: hold, at: now, measured: now, used: now}
	s.alone()
	s.tokens = max(1, l.Burst/s.frontends)
	return s
}

// alone makes it go on without an owner.
func (s *Share) alone() {
	s.until = 0
	s.rate, s.cap = s.limit.Rate/s.frontends, max(fewest, s.limit.Burst/s.frontends)
}

// advance adds what has grown until now.
func (s *Share) advance(now time.Duration) {
	if s.until > 0 && now > s.until {
		s.grow(s.until)
		s.alone()
	}
	s.grow(now)
}

func (s *Share) grow(now time.Duration) {
	if now > s.at {
		s.tokens = min(max(s.cap, s.tokens), s.tokens+s.rate*(now-s.at).Seconds())
		s.at = now
	}
}

// Allow decides whether a request that counts for n is let in. More than the burst never
// is. One that counts for more than the Share can hold is let in when that is full, and
// paid for afterwards.
func (s *Share) Allow(now time.Duration, n uint64) bool {
	s.advance(now)
	s.used = now
	s.asked += float64(n)
	if float64(n) > max(1, s.limit.Burst) || s.tokens < min(float64(n), s.cap) {
		return false
	}
	s.tokens -= float64(n)
	s.total += n
	return true
}

// SetLimit changes what is allowed. The owner learns it from the next report.
func (s *Share) SetLimit(now time.Duration, l Limit) {
	s.advance(now)
	s.limit = l
	if s.until == 0 {
		s.alone()
	}
}

// Limit is what is allowed.
func (s *Share) Limit() Limit { return s.limit }

// Step is what to do with a Share when it is time for a report.
type Step int

const (
	// Wait: there is nothing to report. Look again an Interval later.
	Wait Step = iota
	// Send: the next report is due.
	Send
	// Forget: the Share is as good as a new one.
	Forget
)

// Next is what to do now.
func (s *Share) Next(now time.Duration) Step {
	s.advance(now)
	news, lent := s.total != s.settled, s.until > 0
	switch idle := now-s.used >= IdleAfter; {
	case news || idle && lent || s.shared && lent || s.asked > 0 && !idle:
		return Send
	case idle && s.tokens >= s.cap:
		return Forget
	}
	return Wait
}

// Report is what to send to the owner now. One report at a time may be on its way.
func (s *Share) Report(now time.Duration) Report {
	s.advance(now)
	if dt := now - s.measured; dt > 0 || s.demand == 0 {
		s.demand = estimate(s.demand, s.asked, dt.Seconds())
		s.asked, s.measured = 0, now
	}
	s.sent, s.sentTotal = now, s.total
	r := Report{Limit: s.limit, Demand: s.demand, Tokens: s.tokens, Total: s.total, Fresh: s.total - s.settled}
	if s.until > 0 {
		r.Rate = s.rate
	}
	if now-s.used >= IdleAfter {
		r.Demand, s.demand = 0, 0
	}
	return r
}

// Return is a report that gives the part back, for a frontend that ends.
func (s *Share) Return(now time.Duration) Report {
	r := s.Report(now)
	r.Demand = 0
	return r
}

// estimate is the demand, in requests a second, after so many in a time: over about the last
// countsFor of them, and at once if they are many more or fewer than was to be expected.
func estimate(demand, asked, seconds float64) float64 {
	if demand == 0 {
		return asked / max(seconds, Interval.Seconds()/2)
	}
	rate := asked / seconds
	highest := max(demand, rate)
	over := min(max(countsFor/highest, shortest.Seconds()), longest.Seconds())
	if off := (rate - demand) * seconds; off*off > surprise*surprise*highest*seconds {
		over = shortest.Seconds()
	}
	return demand + (1-math.Exp(-seconds/over))*(rate-demand)
}

// Answer takes the answer to the last report.
func (s *Share) Answer(now time.Duration, a Answer) {
	s.advance(now)
	s.settled, s.shared = s.sentTotal, a.Shared
	if a.Cap == 0 {
		s.alone()
		s.tokens = min(s.tokens, s.cap)
		return
	}
	s.rate, s.cap, s.until = a.Rate, a.Cap, s.sent+s.hold
	s.tokens = min(a.Cap, a.Tokens+a.Rate*(now-s.sent).Seconds()-float64(s.total-s.sentTotal))
}
