package quota

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

const (
	bin    = 100 * time.Millisecond
	window = 10 * time.Second
)

// world is frontends and the owners of one limit, on a network, in virtual time.
type world struct {
	*rand.Rand
	limit  Limit
	now    time.Duration
	events events
	count  int

	fronts []*front
	owner  *owner // by the assignment
	// loss is the part of messages that is lost, and slow the part that takes up to half a second.
	loss, slow float64
	hold       time.Duration

	asked, admitted []float64 // by bins
	lent            float64   // the most that a Bucket has lent at once
}

type front struct {
	session uint64
	share   Share
	exists  bool
	pending bool
	due     time.Duration
	knows   *owner // the owner by the assignment that has arrived here
	cut     bool   // from the owners
	demand  func(now time.Duration) float64
	let     float64
}

type owner struct {
	up     bool
	owns   bool
	learn  time.Duration
	bucket *Bucket
}

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() (x any) {
	n := len(*e) - 1
	x, *e = (*e)[n], (*e)[:n]
	return x
}

func newWorld(seed uint64, l Limit, frontends int) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), limit: l, hold: 15 * time.Second}
	w.owner = &owner{up: true, owns: true}
	for i := range frontends {
		f := &front{session: uint64(i + 1), knows: w.owner, demand: func(time.Duration) float64 { return 0 }}
		w.fronts = append(w.fronts, f)
		w.arrive(f)
		w.after(time.Duration(w.Int64N(int64(Interval/5))), func() { w.tick(f) })
	}
	return w
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

func (w *world) at(t time.Duration, do func()) {
	w.count++
	heap.Push(&w.events, event{t, w.count, do})
}

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	w.now = until
}

// arrive plans the next request at a frontend.
func (w *world) arrive(f *front) {
	d := f.demand(w.now)
	if d == 0 {
		w.after(bin, func() { w.arrive(f) })
		return
	}
	gap := time.Duration(w.ExpFloat64() / d * float64(time.Second))
	if gap > time.Second {
		w.after(time.Second, func() { w.arrive(f) }) // the demand may be another by then
		return
	}
	w.after(gap, func() {
		w.request(f)
		w.arrive(f)
	})
}

func (w *world) request(f *front) {
	if !f.exists {
		f.share, f.exists, f.due = NewShare(w.now, w.limit, len(w.fronts), w.hold), true, 0
	}
	i := int(w.now / bin)
	for len(w.asked) <= i {
		w.asked, w.admitted = append(w.asked, 0), append(w.admitted, 0)
	}
	w.asked[i]++
	if f.share.Allow(w.now, 1) {
		w.admitted[i]++
		f.let++
	}
}

func (w *world) tick(f *front) {
	w.after(Interval/5, func() { w.tick(f) })
	if !f.exists || f.pending || w.now < f.due {
		return
	}
	switch f.share.Next(w.now) {
	case Wait:
		return
	case Forget:
		f.exists = false
		return
	}
	r := f.share.Report(w.now)
	f.pending = true
	f.due = w.now + Interval*4/5 + time.Duration(w.Int64N(int64(Interval*2/5)))
	answered := false
	w.after(time.Second, func() { // the deadline
		if !answered {
			answered, f.pending = true, false
		}
	})
	to := f.knows
	w.send(f, func() {
		if !to.up {
			return
		}
		if !to.owns {
			w.send(f, func() { answered, f.pending = true, false })
			return
		}
		if to.bucket == nil {
			b := NewBucket(w.now, r.Limit, to.learn)
			to.bucket = &b
		}
		a := to.bucket.Report(w.now, f.session, r)
		w.look(to.bucket)
		w.send(f, func() {
			if !answered {
				answered, f.pending = true, false
				f.share.Answer(w.now, a)
				if a.Soon {
					f.due = 0
				}
			}
		})
	})
}

// look notes what a Bucket has lent. While it learns that is what the last owner has.
func (w *world) look(b *Bucket) {
	lent := 0.
	for _, a := range b.accounts {
		lent += a.rate
	}
	if w.now >= b.learning && w.loss == 0 {
		w.lent = max(w.lent, lent)
	}
}

// send delivers a message between a frontend and an owner.
func (w *world) send(f *front, do func()) {
	if f.cut || w.Float64() < w.loss {
		return
	}
	d := time.Duration(w.Int64N(int64(3 * time.Millisecond)))
	if w.Float64() < w.slow {
		d = time.Duration(w.Int64N(int64(500 * time.Millisecond)))
	}
	w.after(d, do)
}

// spread tells the frontends of an assignment.
func (w *world) spread(o *owner) {
	w.owner = o
	for _, f := range w.fronts {
		w.after(time.Duration(w.Int64N(int64(300*time.Millisecond))), func() { f.knows = o })
	}
}

// move gives the limit to another owner, which is told what the last one knew.
func (w *world) move() {
	from, to := w.owner, &owner{up: true, owns: true, learn: w.now + LearnFor}
	w.spread(to)
	w.after(time.Duration(w.Int64N(int64(100*time.Millisecond))), func() {
		from.owns = false
		if from.bucket == nil {
			return
		}
		s := from.bucket.State(w.now)
		w.after(time.Duration(w.Int64N(int64(100*time.Millisecond))), func() {
			if to.bucket == nil {
				b := NewBucket(w.now, s.Limit, to.learn)
				to.bucket = &b
			}
			to.bucket.Merge(w.now, s)
		})
	})
}

// crash ends the owner, and another comes after a while that knows nothing.
func (w *world) crash(outage time.Duration) {
	w.owner.up = false
	w.after(outage, func() { w.spread(&owner{up: true, owns: true, learn: w.now + LearnFor}) })
}

// bounds are the least and the most of what was let in over any window between two moments,
// as parts of what the limit allows. Windows in which less is asked for than over times
// the rate do not count for the least.
func (w *world) bounds(from, to time.Duration, over float64) (least, most float64) {
	least, most = math.Inf(1), 0
	n := int(window / bin)
	for i := int(from / bin); i+n <= int(to/bin) && i+n <= len(w.asked); i++ {
		asked, admitted := 0., 0.
		for j := i; j < i+n; j++ {
			asked += w.asked[j]
			admitted += w.admitted[j]
		}
		allowed := w.limit.Rate * window.Seconds()
		most = max(most, admitted/allowed)
		if asked >= over*allowed {
			least = min(least, admitted/allowed)
		}
	}
	return least, most
}
