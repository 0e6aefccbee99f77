package overload

import (
	"math"
	"time"
)

// byCriticality has a value for each, Sheddable first.
type byCriticality [CriticalPlus]float64

func (b *byCriticality) sum() (sum float64) {
	for _, v := range b {
		sum += v
	}
	return sum
}

// rates say how many requests are asked for.
type rates struct {
	asked byCriticality // decayed
	sent  float64       // of these, that arrived
	burst [burstTicks]burst
	ticks int
	more  bool // the last burst goes on: it is of less than a Tick, or late
}

// burst is how many requests arrived between two Ticks.
type burst struct {
	arrived byCriticality
	seconds float64
	lasts   float64 // the seconds, each Tick up to mostLate
	usual   float64 // how many usually arrive in these
}

// late reports whether far fewer arrived than usual, and not by chance: the process, its clients or
// the network may have stood still, and what was to arrive then may arrive now, all at once. After a
// second that is what is asked for.
func (b *burst) late() bool {
	return b.lasts < 2*mostLate.Seconds() && b.usual-b.arrived.sum() > burstSigma*math.Sqrt(b.usual)
}

// sure is how many of so many do not arrive by chance.
func sure(arrived float64) float64 { return arrived - burstSigma*math.Sqrt(arrived) }

// forget keeps a part of what was asked for.
func (r *rates) forget(keep float64) {
	for i := range r.asked {
		r.asked[i] *= keep
	}
}

// sentShare is what share of what is asked for arrives: clients hold back the rest.
func (r *rates) sentShare() float64 {
	if all := r.asked.sum(); all > 0 {
		return min(r.sent/all, 1)
	}
	return 1
}

// tick takes how many arrived in a time, and how many were asked for, and returns how many are
// asked for a second. usual is the same over a longer time. What is asked for more or less than
// that counts for the criticalities of which more or less is, and not by chance: a flood of one
// is not taken for more of the others. What arrived tells if there are suddenly more;
// those for which others stand say nothing of that: one may stand for hundreds. What arrives
// after far fewer than usual did (burst.late) counts as if it had arrived over that time, too.
func (r *rates) tick(arrived [CriticalPlus]int, asked, usual byCriticality, over time.Duration, keep float64) (rate byCriticality) {
	if !r.more {
		r.ticks++
		r.burst[r.ticks%burstTicks] = burst{}
	}
	b := &r.burst[r.ticks%burstTicks]
	counts := min(over, mostLate).Seconds()
	b.seconds, b.lasts, b.usual = b.seconds+over.Seconds(), b.lasts+counts, b.usual+counts*r.sent/askedOver.Seconds()
	var more, less byCriticality
	all := 0.
	r.sent *= keep
	for i := range rate {
		came := float64(max(arrived[i], 0))
		b.arrived[i] += came
		r.sent += came
		r.asked[i] = r.asked[i]*keep + asked[i]
		now := r.asked[i] * (1 - keep) / over.Seconds()
		all += now
		chance := burstSigma * math.Sqrt(now/(2*askedOver.Seconds())) // of such a mean
		more[i], less[i] = max(now-chance-usual[i], 0), max(usual[i]-now-chance, 0)
	}
	r.more = b.seconds < Tick.Seconds() || b.late()
	var window burst
	for i := range burstTicks {
		if window.seconds >= burstTicks*Tick.Seconds() {
			break
		}
		b := r.burst[(r.ticks-i+burstTicks)%burstTicks]
		window.seconds += b.seconds
		for i, n := range b.arrived {
			window.arrived[i] += n
		}
		if window.seconds < Tick.Seconds() && i < burstTicks-1 {
			continue // many are read at once that came in a longer time
		}
		seconds := max(window.seconds, Tick.Seconds())
		for i, n := range window.arrived {
			more[i] = max(more[i], sure(n)/seconds-usual[i])
		}
		all = max(all, sure(window.arrived.sum())/seconds)
	}
	differs, by := all-usual.sum(), usual
	switch {
	case differs > 0 && more.sum() > 0:
		by = more
	case differs < 0 && less.sum() > 0:
		by = less
	case usual.sum() <= 0:
		return rate
	}
	for i := range rate {
		rate[i] = max(usual[i]+differs*by[i]/by.sum(), 0)
	}
	return rate
}
