package cluster

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

const (
	// Requests are for so many keys, each of which asks for usually of what a task can do. That
	// is not what tasks report as load, which is for more keys (load): what is to be found out is
	// how requests fare, whatever the assigner does.
	trafficKeys = 6
	usually     = .15
)

var (
	usualMix     = [overload.CriticalPlus]float64{.2, .2, .5, .1}
	sheddableMix = [overload.CriticalPlus]float64{1}
	criticalMix  = [overload.CriticalPlus]float64{.1, 0, .9}
)

// traffic is what users ask for.
type traffic struct {
	w    *world
	rng  *rand.Rand
	seq  uint64
	keys []assignment.SliceKey
	on   [trafficKeys]*source
	// flood is that which goes on, nil if there is none.
	flood           *flood
	floods          int
	crowd           *crowd // nil: none
	customers       [2]*customer
	asked, attempts int
}

// flood is when one or two keys ask for times what a task can do.
type flood struct {
	keys   []int
	times  float64
	began  time.Duration
	counts time.Duration // since when it is counted
}

// source is what asks for a key: the users of all clerks.
type source struct {
	w    *world
	key  int
	rate float64 // a second
	mix  *[overload.CriticalPlus]float64
	// until is how long what was asked for in the flood before may be asked for again, and before
	// how much that was.
	until  time.Duration
	before float64
}

func newTraffic(w *world) *traffic {
	t := &traffic{w: w, rng: rand.New(rand.NewPCG(w.seed, 3)), seq: 1 << 62, customers: newCustomers(w)}
	for range trafficKeys {
		t.keys = append(t.keys, assignment.SliceKey(t.rng.Uint64()>>1))
	}
	return t
}

// enqueue is world.enqueue without a change of what is drawn for the control plane.
func (t *traffic) enqueue(at time.Duration, key uint64, what happening) {
	t.seq++
	t.w.queue.push(max(at, t.w.at), key, t.seq, what)
}

func (t *traffic) seconds(least, most float64) time.Duration {
	return time.Duration((least + t.rng.Float64()*(most-least)) * float64(time.Second))
}

// next has the next happen of what comes so often a second, by chance.
func (t *traffic) next(rate float64, key uint64, what happening) {
	t.enqueue(t.w.at+time.Duration(t.rng.ExpFloat64()/rate*float64(time.Second)), key, what)
}

func (t *traffic) later(d time.Duration, f func()) { t.enqueue(t.w.at+d, 1<<60, call(f)) }

// begin is when users begin to ask, and when there is the first flood.
func (t *traffic) begin() {
	for key := range t.keys {
		t.set(key, usually*capacity, &usualMix)
	}
	t.later(t.seconds(5, 20), t.overload)
	t.buy()
	(*wander)(t).happen()
}

// set has a key be asked for so often from now on.
func (t *traffic) set(key int, rate float64, mix *[overload.CriticalPlus]float64) {
	t.on[key] = &source{w: t.w, key: key, rate: rate, mix: mix}
	t.rerouted()
	t.on[key].next()
}

func (x *source) next() {
	x.w.traffic.next(x.rate, 1<<59, x)
}

// happen is a request.
func (x *source) happen() {
	t := x.w.traffic
	if t.on[x.key] != x {
		return
	}
	x.next()
	c, l := x.w.clerks[t.rng.IntN(len(x.w.clerks))], drawLabels(t.rng, x.mix)
	if c.runs() {
		c.ask(x.key, nil, l)
	}
}

func drawLabels(rng *rand.Rand, mix *[overload.CriticalPlus]float64) (l overload.Labels) {
	x := rng.Float64()
	for i, share := range mix {
		if l.Criticality = overload.Sheddable + overload.Criticality(i); x < share {
			break
		}
		x -= share
	}
	l.SetCohort(rng.IntN(overload.Cohorts))
	return l
}

// overload begins a flood, with more that goes wrong or without, and the next one long after
// its end.
func (t *traffic) overload() {
	w, lasts := t.w, t.seconds(6, 12)
	f := &flood{keys: t.rng.Perm(trafficKeys)[:1+t.rng.IntN(2)], times: []float64{1.5, 3, 5, 10}[t.rng.IntN(4)], began: w.at, counts: w.at + 5*time.Second}
	mix := []*[overload.CriticalPlus]float64{&usualMix, &usualMix, &sheddableMix, &criticalMix}[t.rng.IntN(4)]
	w.note("keys %v ask for %v times what a task can do for %s", f.keys, f.times, lasts)
	t.flood, t.floods = f, t.floods+1
	for _, k := range f.keys {
		t.set(k, f.times*capacity, mix)
	}
	w.check.flooded()
	t.later(lasts, func() {
		w.check.floodEnds(f)
		w.note("the flood is over")
		t.flood = nil
		for _, k := range f.keys {
			t.set(k, usually*capacity, &usualMix)
			t.on[k].until, t.on[k].before = w.at+mostAttempts*patience, f.times*capacity
		}
		t.rerouted()
		t.later(mostAttempts*patience, t.rerouted)
		t.later(t.seconds(20, 45), t.overload)
	})
	if w.healed {
		return
	}
	s := t.owner(f.keys[0])
	switch t.rng.IntN(9) {
	case 0:
		s.become(1.5+t.rng.Float64()*18, 0, t.seconds(2, 15))
	case 1:
		s.become(1, 1+t.rng.Float64(), t.seconds(2, 15))
	case 2:
		t.later(t.seconds(0, lasts.Seconds()), func() { w.killed(s.host, t.rng.IntN(2) == 0, t.seconds(0, 10)) })
	case 3:
		t.later(t.seconds(0, lasts.Seconds()), func() {
			s.pause()
			t.later(t.seconds(.1, 3), s.resume)
		})
	case 4:
		t.later(t.seconds(0, lasts.Seconds()), s.drain)
	case 5:
		if w.at < beginning+time.Minute {
			return // there may be an outage that is to last
		}
		back := t.seconds(1, 10)
		for _, d := range w.distributors {
			w.killed(d.host, false, back)
		}
	}
}

// owner is the owner of a key as stored, or some task if there is none.
func (t *traffic) owner(key int) *sliceletHost {
	if a := t.w.store.stored; a != nil {
		return t.w.named[a.Lookup(t.keys[key]).At(0).Name]
	}
	return t.w.slicelets[0]
}

// become has a task be slower, and say that it is as full as signal, for a time.
func (s *sliceletHost) become(slow, signal float64, d time.Duration) {
	s.w.note("%s is %.1f times as slow and %.1f full for %s", s.name, slow, signal, d)
	set := func(slow, signal float64) {
		s.slow, s.signal, s.became = slow, signal, s.w.at
		s.w.traffic.rerouted()
	}
	set(slow, signal)
	s.w.traffic.later(d, func() { set(1, 0) })
}

// rerouted is for when what is asked of tasks has changed, or what they can do.
func (t *traffic) rerouted() {
	var rate [64]float64
	add := func(key int, per func(*sliceletHost) float64) {
		for _, c := range t.w.clerks {
			if c.asking == nil || c.asking.routed == nil {
				continue
			}
			for owner := range c.asking.routed.Lookup(t.keys[key]).All() {
				s := t.w.named[owner.Name]
				rate[s.at] += per(s) / float64(len(t.w.clerks))
			}
		}
	}
	for key, x := range t.on {
		switch {
		case x == nil:
		case t.w.at < x.until:
			add(key, func(*sliceletHost) float64 { return x.rate + x.before })
		default:
			add(key, func(*sliceletHost) float64 { return x.rate })
		}
	}
	for _, x := range t.customers {
		for _, key := range x.keys {
			add(key, x.perKey)
		}
	}
	for i, s := range t.w.slicelets {
		if t.crowd != nil {
			s.ratio.set(t.w.at, 2)
			continue
		}
		s.ratio.set(t.w.at, max((rate[i]+keyless/fewTasks)*s.slow/capacity, s.signal))
	}
}

// ratio is how much is asked of a task, or how full it says that it is, to what it can do. A
// key with several owners counts as if one got all.
type ratio struct {
	now   float64
	since time.Duration
	full  time.Duration // since when it is at least 1, if it is
	// above is until when it was at least what is looked for.
	aboveLittle, aboveMuch time.Duration
	// came are requests, and strays those for what it does not own, decayed over cameOver, at cameAt.
	came, strays float64
	cameAt       time.Duration
}

// cameOver is in what time requests are too many that come together by chance, or as their owner
// has died.
const cameOver = 250 * time.Millisecond

// comes counts a request. A stray one is for what the task does not own: its owner has died, and some
// other was asked, which now does not say.
func (r *ratio) comes(at time.Duration, slow float64, stray bool) {
	keep := math.Exp(-(at - r.cameAt).Seconds() / cameOver.Seconds())
	r.came, r.strays, r.cameAt = r.came*keep+1, r.strays*keep, at
	each := slow / cameOver.Seconds() / capacity
	if r.came*each >= 1 {
		r.aboveLittle = at
	}
	if !stray {
		return
	}
	r.strays++
	asked := r.now + r.strays*each
	if asked >= little {
		r.aboveLittle = at
	}
	if asked >= much {
		r.aboveMuch = at
	}
}

func (r *ratio) set(at time.Duration, to float64) {
	if to == r.now {
		return
	}
	if r.now >= little {
		r.aboveLittle = at
	}
	if r.now >= much {
		r.aboveMuch = at
	}
	if r.now < 1 {
		r.full = at
	}
	r.now, r.since = to, at
}

// below reports whether it has been below a bar for so long.
func (r *ratio) below(at time.Duration, bar float64, d time.Duration) bool {
	above := r.aboveMuch
	if bar == little {
		above = r.aboveLittle
	}
	return r.now < bar && at-above >= d
}
