package loadbalance

import (
	"math"
	"slices"
	"time"
)

// estimate is what is known of the load of one slice, in load units a second.
type estimate struct {
	level float64
	// gain is the weight of the next measurement, 0 for the configured one. It
	// follows the correlation of successive errors of prediction: errors that
	// keep their sign say that the level lags, errors that change it that the
	// level chases noise.
	gain float64
	last float64 // the last error
	mean float64 // mean square of the errors
	// peak is a maximum that fades, for what must not be hastily undone.
	peak float64
	// from is the level before a jump and leap how far the load then jumped, 0
	// if it did not jump at the last measurement.
	from, leap float64
	age        int32 // measurements that level is made of, 0 if it is a guess
	fromAge    int32 // those of from
}

const (
	// sliceNoise is the relative error that a measurement has at least.
	sliceNoise = .06
	// jump is by how much of itself a load must change, and by how many standard
	// deviations, to count as a change rather than an error.
	jump, jumpSigma = .25, 3
	trackWeight     = .2
	learn           = .15 // how fast a gain follows
	// tolerate is the correlation of errors at which a gain stays: a little lag
	// costs less than the moves that chasing noise causes.
	tolerate = .15
	peakKeep = .98
	// firstUnrest is the unrest that is assumed at first, by small.
	firstUnrest = .16
	// slowest is the smallest gain, as a part of the configured one.
	slowest = .2
	// memory is at least how long levels reach back where load stays as it is, however
	// short rounds are, and unhurried the length of rounds from which on a gain follows as
	// fast as it can: in shorter ones there is more time.
	memory, unhurried = 10 * time.Minute, 5 * time.Minute
	// drift is by how much of itself a load is taken to change from one
	// measurement to the next without a jump, at most: a measurement that is less
	// certain than that counts accordingly less, as in a Kalman filter.
	drift = .15
	// longest is how many measurements may outlive a jump that is not believed.
	longest = 20
)

// part is the estimate of a part of a slice with a share of its load; age says
// how well that share is known.
func (e estimate) part(share float64, age int32) estimate {
	e.level *= share
	e.last *= share
	e.mean *= share * share
	e.peak *= share
	e.from *= share
	e.leap *= share
	e.age = min(e.age, age)
	return e
}

// plus is the estimate of two slices together.
func (e estimate) plus(f estimate) estimate {
	if e == (estimate{}) {
		return f
	}
	e.level += f.level
	e.gain = max(e.gain, f.gain)
	e.last += f.last
	e.mean += f.mean
	e.peak += f.peak
	e.from += f.from
	e.leap += f.leap
	e.age = min(e.age, f.age)
	return e
}

// trust is what all slices together have taught about measurements.
type trust struct {
	rounds int // of measurements
	// scale is the variance of a measurement per unit of load, beside the
	// relative error: what comes from counting single requests. It is learnt,
	// because the unit may be any.
	scale float64
	// count is the variance per unit of load of counting requests; 0 when the
	// load is not requests.
	count float64
	// unrest is the variance of what slices will carry next, as a share of the
	// squared total, added up over all that are no large part of a task.
	unrest float64
	// bursts is unrest in which slices count that had become a large part of one.
	bursts float64
	// rho is the correlation of successive errors over all slices, by load.
	rho           float64
	rhos, rhoLoad float64
	// known over shown is how much of what sets slices apart from the even load
	// of the keyspace was found again in the next measurement.
	known, shown float64
	// kept over leapt is how much of a jump has been found to last until the next
	// measurement, recent jumps counting most.
	kept, leapt float64
	// stayed over came is the same of all errors that may have been jumps, believed or not.
	stayed, came float64
	// sigma is by how many standard deviations of what is counted a load must have changed to
	// count as a change, where it is at least large; that is a tenth of what a task carries.
	sigma, large float64
	// usual is how much of the load is found elsewhere than foretold, beyond chance, and
	// surprise how much more than twice that was in the last measurement, 0 if it is little.
	usual, surprise float64
	// pace is the share of memory, and tempo that of unhurried, that a round takes, at most 1.
	pace, tempo float64
	// brief reports that the newest measurement took less time than most, afterBrief that the
	// one before did. What was brief has seen only a part of a jump if that came in its course,
	// so that how far the load has jumped is what the next measurement says.
	brief, afterBrief bool
}

const (
	trustKeep  = .9 // a round
	trustPrior = .03
)

// lasting is the share of a jump to believe in: all of it until shown otherwise.
func (t *trust) lasting() float64 {
	return min(max((t.kept+trustPrior)/(t.leapt+trustPrior), .05), 1)
}

// fleeting reports whether what comes unforeseen is gone by the next measurement.
func (t *trust) fleeting() bool { return t.stayed+trustPrior < (t.came+trustPrior)/2 }

// doubt sets how much evidence a jump takes: the more, the more slices there are, of which
// some will seem to jump by chance, and the less of a task's load, mean, hangs on it.
func (t *trust) doubt(slices int, mean float64) {
	t.sigma = max(jumpSigma, math.Sqrt(2*math.Log(float64(max(slices, 1)))))
	t.large = mean / 10
}

// mostDoubt is by how much more evidence counts for the smallest slices.
const mostDoubt = 5

// jumped reports whether a load that was level can only have been measured as x because
// it changed. How much a measurement is off besides what is counted is always held against it.
func (t *trust) jumped(level, x float64) bool {
	err := math.Abs(x - level)
	if err <= jump*max(level, x) {
		return false
	}
	sigma := t.sigma * min(max(t.large/max(level, x), 1), mostDoubt)
	counted := max(t.scale, t.count) * max(level, (level+x)/2)
	return err*err > jumpSigma*jumpSigma*sliceNoise*level*sliceNoise*level+sigma*sigma*counted
}

func (t *trust) variance(level float64) float64 {
	return sliceNoise*level*sliceNoise*level + t.scale*level
}

// smoother turns measurements into estimates.
type smoother struct {
	cells []estimate // by slice of Prev
	trust trust
}

// update takes in what was measured. weight is that of a new measurement, and
// small the share of all load below which a slice is no large part of a task.
func (s *smoother) update(rate, width []float64, weight, small float64) {
	total, known := 0.0, 0.0
	for i, x := range rate {
		if x == x {
			total += sane(x)
			known += width[i]
		}
	}
	if total <= 0 {
		return
	}
	s.trust.rounds = min(s.trust.rounds+1, 1<<20)
	s.scale(s.common(rate))
	s.surprise(rate, total)
	s.judge(rate, total)
	s.compare(rate, width, total/known, small*total)
	lasting := s.trust.lasting()
	s.trust.doubt(len(rate), 4*small*total)
	var errs, levels, unrest, bursts float64
	for i, x := range rate {
		if x != x {
			continue
		}
		x = sane(x)
		c := &s.cells[i]
		c.peak = max(c.peak*peakKeep, x)
		if c.age == 0 {
			s.trust.meet(c, x, total/known*width[i])
			continue
		}
		e, l := s.trust.step(c, x, weight, lasting)
		errs += e
		levels += l
		if l < small*total {
			// A hot key is no unrest: it will be dealt with.
			d := min(math.Abs(x-l), small*total)
			unrest += d * d
			d = min(math.Abs(x-l), 4*small*total)
			bursts += d * d
		}
	}
	if t := &s.trust; t.rhoLoad > 0 {
		t.rho += .5 * (t.rhos/t.rhoLoad - t.rho)
		t.rhos, t.rhoLoad = 0, 0
	}
	if levels > 0 {
		t, w := &s.trust, .2
		if t.scale == 0 {
			w = 1
			t.unrest = firstUnrest * small
			t.bursts = firstUnrest * small
		}
		t.scale += w * (errs/levels - t.scale)
		t.unrest += .2 * (unrest/(total*total) - t.unrest)
		t.bursts += .2 * (bursts/(total*total) - t.bursts)
	}
}

const (
	// groups is into how many runs of slices of equal load the load is divided to see
	// whether all of it has changed, fewGroups is how many of them are too few to tell,
	// and commonSigma by how many standard deviations it must have.
	groups, fewGroups = 32, 8
	commonSigma       = 4
	mostCommon        = 1000 // the largest factor, and the smallest the other way
)

// common is the factor by which all of the load has changed since the last round: the
// median of those of groups of slices, which a few hot keys do not move; 1 unless these
// agree so well that it cannot be chance, as it may be when requests are few.
func (s *smoother) common(rate []float64) float64 {
	sum := 0.0
	for i, x := range rate {
		if c := &s.cells[i]; x == x && c.age > 0 {
			sum += c.level
		}
	}
	if sum <= 0 {
		return 1
	}
	var factors [groups]float64
	n, was, is := 0, 0.0, 0.0
	for i, x := range rate {
		c := &s.cells[i]
		if x != x || c.age == 0 {
			continue
		}
		was += c.level
		is += sane(x)
		if was >= sum/groups && n < groups {
			factors[n] = is / was
			n++
			was, is = 0, 0
		}
	}
	if n < fewGroups {
		return 1
	}
	f := factors[:n]
	slices.Sort(f)
	middle := f[n/2]
	for i, x := range f {
		f[i] = math.Abs(x - middle)
	}
	slices.Sort(f)
	// The standard error of a median, from the median absolute deviation.
	err := 1.2533 * 1.4826 * f[n/2] / math.Sqrt(float64(n))
	if middle <= 0 || math.Abs(middle-1) <= commonSigma*err {
		return 1
	}
	return min(max(middle, 1/mostCommon), mostCommon)
}

const (
	// littleSurprise is the share of the load that may be elsewhere without the levels of
	// slices being doubted that have not evidently jumped.
	littleSurprise = .1
	usualWeight    = .1
	// firstUsual is the share that is taken to be elsewhere usually before any has been seen.
	// It counts as much as one round.
	firstUsual = .5
)

// surprise finds out how much of the load is elsewhere than foretold, beyond what chance
// does and what is usual. Then most slices have changed, also those that are too small to
// prove it one by one, and what is known of them is worth that much less. Where load is
// elsewhere in every round it is usual, and nothing follows from it.
func (s *smoother) surprise(rate []float64, total float64) {
	t := &s.trust
	off, chance := 0.0, 0.0
	for i, x := range rate {
		c := &s.cells[i]
		if x != x || c.age == 0 {
			continue
		}
		off += math.Abs(sane(x) - c.level)
		chance += math.Sqrt(sliceNoise*c.level*sliceNoise*c.level + max(t.scale, t.count)*c.level)
	}
	// The mean deviation is .8 of the standard deviation, and what is somewhere else is
	// missed where it was.
	elsewhere := max(off-.8*chance, 0) / (2 * total)
	t.surprise = 0
	if t.rounds == 1 {
		t.usual = firstUsual // nothing was foretold
		return
	}
	if more := elsewhere - 2*t.usual; more > littleSurprise {
		t.surprise = min(more, 1)
	}
	t.usual += max(usualWeight, 1/float64(t.rounds)) * (elsewhere - t.usual)
}

// scale multiplies all that is known.
func (s *smoother) scale(by float64) {
	if by == 1 {
		return
	}
	for i := range s.cells {
		c := &s.cells[i]
		*c = c.part(by, c.age)
	}
}

// judge finds out how much of the jumps of the last round has lasted, and takes
// back those that did not last.
func (s *smoother) judge(rate []float64, total float64) {
	t := &s.trust
	var kept, leapt, stayed, came float64
	for i, x := range rate {
		c := &s.cells[i]
		if x != x || c.age == 0 {
			continue
		}
		x = sane(x)
		if c.leap == 0 {
			if e := c.last; math.Abs(e) > jump*max(c.level, c.level+e) && e*e > jumpSigma*jumpSigma*t.variance(c.level) {
				stayed += (x - c.level) * e
				came += e * e
			}
			continue
		}
		kept += (x - c.from) * c.leap
		leapt += c.leap * c.leap
		if math.Abs(x-c.from) < math.Abs(x-c.level) {
			c.level, c.age = c.from, max(c.age, c.fromAge)
		}
		if t.afterBrief {
			c.level, c.age = x, 1
		}
		c.leap = 0
	}
	t.kept = t.kept*trustKeep + kept/(total*total)
	t.leapt = t.leapt*trustKeep + leapt/(total*total)
	t.stayed = t.stayed*trustKeep + (kept+stayed)/(total*total)
	t.came = t.came*trustKeep + (leapt+came)/(total*total)
}

// meet takes in the first measurement of a slice; even is the load that it
// would have if all keys were alike. A guess counts as much as one measurement
// unless it is evidently wrong.
func (t *trust) meet(c *estimate, x, even float64) {
	if c.level > 0 {
		if err := x - c.level; err*err <= jumpSigma*jumpSigma*t.variance(c.level) {
			x = (x + c.level) / 2
		}
		*c = estimate{level: x, gain: c.gain, peak: c.peak, age: 2}
		return
	}
	*c = estimate{level: x, gain: c.gain, peak: c.peak, from: even, leap: max(x-2*even, 0), age: 1}
}

// compare finds out how far the levels of small slices have foretold how they
// differ from the even load. A change of hot keys says nothing about that.
func (s *smoother) compare(rate, width []float64, even, small float64) {
	known, shown := 0.0, 0.0
	for i, x := range rate {
		c := &s.cells[i]
		if x != x || c.age == 0 || c.level >= small {
			continue
		}
		d := c.level - even*width[i]
		known += (sane(x) - even*width[i]) * d
		shown += d * d
	}
	if shown <= 0 {
		return
	}
	t := &s.trust
	if t.shown == 0 {
		t.known, t.shown = regressPrior, regressPrior
	}
	// Each round counts alike, however large its differences.
	t.known = t.known*regressKeep + known/shown
	t.shown = t.shown*regressKeep + 1
}

const (
	regressKeep  = .95 // a round
	regressPrior = 1   // rounds
)

// regress is the load to expect of a slice whose level is known: as far as
// levels have proved to mean little, it is what its width alone would suggest.
func (t *trust) regress(level, even, small float64) float64 {
	if level >= small {
		return level
	}
	return even + t.foretold()*(level-even)
}

// foretold is the share of what sets slices apart that has been found again.
func (t *trust) foretold() float64 {
	if t.shown == 0 {
		return 1
	}
	return min(max(t.known/t.shown, 0), 1)
}

// step updates one estimate. It returns the squared error beyond the relative
// one, and the load that it goes with.
func (t *trust) step(c *estimate, x, weight, lasting float64) (excess, level float64) {
	err := x - c.level
	noise := t.variance(c.level)
	square, level := err*err, c.level
	if t.scale > 0 {
		square = min(square, 9*noise)
	}
	excess = max(square-sliceNoise*level*sliceNoise*level, 0)
	if t.jumped(level, x) {
		// As far as the jump is doubted, what was measured before still counts.
		age := 1 + int32((1-lasting)*float64(min(c.age, longest)))
		*c = estimate{level: level + lasting*err, gain: c.gain, peak: c.peak, from: level, leap: err, age: age, fromAge: c.age}
		return excess, level
	}
	if t.surprise > 0 {
		c.age = min(c.age, int32(1/t.surprise))
	}
	c.age = min(c.age+1, 1<<20)
	if c.gain == 0 {
		c.gain = weight
	}
	if c.mean > 0 {
		rho := min(max(err*c.last/c.mean, -1), 1)
		c.gain += t.tempo * learn * (rho - tolerate + 4*t.rho)
		t.rhos += rho * c.level
		t.rhoLoad += c.level
	}
	c.gain = min(max(c.gain, min(weight*slowest, t.pace)), 1)
	c.mean += trackWeight * (err*err - c.mean)
	c.last = err
	c.level += max(min(c.gain, t.surest(level)), 1/float64(c.age), t.surprise) * err
	return excess, level
}

// surest is the largest gain that the counting of requests allows.
func (t *trust) surest(level float64) float64 {
	if t.count <= 0 {
		return 1
	}
	q := drift * drift * level
	return q / (q + t.count)
}
