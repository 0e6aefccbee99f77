package cluster

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/slicer-project/slicer/assigner/preference"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

// size says how large the cluster is.
type size struct{ assigners, distributors, backups, slicelets, clerks int }

var usualSize = size{assigners: 3, distributors: 3, backups: 2, slicelets: 30, clerks: 4}

func newWorld(seed uint64, n size) *world {
	w := &world{seed: seed, queue: rooms.Get().(*events), rng: rand.New(rand.NewPCG(seed, 1)), cuts: map[pair]severed{}, touched: map[pair]time.Duration{}, servers: map[string]server{}, named: map[string]*sliceletHost{}}
	w.check = newChecker(w)
	w.traffic = newTraffic(w)
	w.load = newLoad(rand.New(rand.NewPCG(seed, 2)))
	config := assignment.JobConfig{Name: job, Balance: assignment.BalanceConfig{MinSlicesPerTask: 2, MaxSlicesPerTask: 5, Interval: 15 * time.Second}, Freeze: assignment.FreezeConfig{For: thaws}, Limits: w.traffic.limits()}.WithDefaults()
	w.store = &storage{host: w.newHost("store"), job: store.Job{Config: config, Version: 1}, candidates: map[string]*candidate{}}
	w.store.boot = func() {}
	for i := range n.assigners {
		w.assigners = append(w.assigners, newAssigner(w, fmt.Sprintf("a%d", i)))
	}
	for i := range n.distributors {
		d := newDistributor(w, fmt.Sprintf("d%d", i))
		w.distributors, w.servers[d.name] = append(w.distributors, d), server{d.host, d.accept}
	}
	for i := range n.backups {
		b := newBackup(w, fmt.Sprintf("b%d", i))
		w.backups, w.servers[b.name] = append(w.backups, b), server{b.host, b.accept}
	}
	for i := range n.slicelets {
		w.slicelets = append(w.slicelets, newSlicelet(w, fmt.Sprintf("s%02d", i)))
	}
	for i := range n.clerks {
		w.clerks = append(w.clerks, newClerk(w, fmt.Sprintf("c%d", i)))
	}
	for _, h := range w.hosts {
		h.severed = make([]bool, len(w.hosts))
		w.schedule(between(w.hash(uint64(h.id)), 0, time.Second), uint64(h.id), h.start)
	}
	return w
}

func (w *world) seconds(least, most int) time.Duration {
	return time.Duration(least*1000+w.rng.IntN((most-least)*1000)) * time.Millisecond
}

func (w *world) later(d time.Duration, f func()) { w.schedule(w.at+d, 1<<60, f) }

func (w *world) someSlicelet() *sliceletHost { return w.slicelets[w.rng.IntN(len(w.slicelets))] }

// killed kills a process, and has another start in its place.
func (w *world) killed(h *host, silently bool, back time.Duration) {
	h.kill(silently)
	w.later(back, h.start)
}

func (w *world) isolated(h *host, d time.Duration) {
	w.note("%s is cut off from all for %s", h.name, d)
	for _, o := range w.hosts {
		if o != h {
			w.cut(h, o)
			w.later(d, func() { w.mend(h, o) })
		}
	}
}

// deaf has what one host sends not reach another. That stops the other way, too, soon:
// who hears of nothing that it has got through sends nothing new.
func (w *world) deaf(from, to *host, d time.Duration) {
	w.note("what %s sends does not reach %s for %s", from.name, to.name, d)
	w.cutWay(from, to)
	w.later(d, func() { w.mendWay(from, to) })
	soon := min(w.seconds(0, 3), d)
	w.later(soon, func() {
		w.cutWay(to, from)
		w.later(d-soon, func() { w.mendWay(to, from) })
	})
}

// fault does one bad thing.
func (w *world) fault() {
	switch w.rng.IntN(22) {
	case 0:
		w.killed(w.assigners[w.rng.IntN(len(w.assigners))].host, w.rng.IntN(2) == 0, w.seconds(0, 20))
	case 1:
		w.killed(w.distributors[w.rng.IntN(len(w.distributors))].host, w.rng.IntN(2) == 0, w.seconds(0, 20))
	case 2, 3:
		w.killed(w.someSlicelet().host, false, w.seconds(0, 30))
	case 4:
		w.killed(w.someSlicelet().host, true, w.seconds(5, 60))
	case 5, 6:
		h := w.hosts[w.rng.IntN(len(w.hosts))]
		h.pause()
		w.later(w.seconds(1, 15), h.resume)
	case 7:
		a, b := w.hosts[w.rng.IntN(len(w.hosts))], w.hosts[w.rng.IntN(len(w.hosts))]
		if a != b {
			d := w.seconds(1, 30)
			w.note("%s and %s are cut off from each other for %s", a.name, b.name, d)
			w.cut(a, b)
			w.later(d, func() { w.mend(a, b) })
		}
	case 8:
		w.isolated(w.hosts[w.rng.IntN(len(w.hosts))], w.seconds(1, 30))
	case 9:
		w.isolated(w.store.host, w.seconds(1, 15))
	case 10:
		w.someSlicelet().drain()
	case 11:
		a := w.assigners[w.rng.IntN(len(w.assigners))]
		a.skew += w.seconds(-3600, 3600)
		w.note("the wall clock of %s is off by %s", a.name, a.skew)
	case 12:
		w.note("other keys are hot")
		w.load.shift()
	case 13:
		w.lateNews(w.someSlicelet())
	case 14:
		w.brake()
	case 15:
		w.killed(w.backups[w.rng.IntN(len(w.backups))].host, w.rng.IntN(2) == 0, w.seconds(0, 20))
	case 16:
		if a, b := w.hosts[w.rng.IntN(len(w.hosts))], w.hosts[w.rng.IntN(len(w.hosts))]; a != b {
			w.deaf(a, b, w.seconds(1, 30))
		}
	case 17:
		a := w.assigners[w.rng.IntN(len(w.assigners))].host
		b := w.store.host
		if w.rng.IntN(2) == 0 {
			b = w.distributors[w.rng.IntN(len(w.distributors))].host
		}
		if w.rng.IntN(2) == 0 {
			a, b = b, a
		}
		w.deaf(a, b, w.seconds(1, 30))
	case 18:
		if n := len(w.conns); n > 0 {
			w.conns[w.rng.IntN(n)].lose()
		}
	case 19:
		d := w.seconds(1, 15)
		w.note("the store loses requests and answers for %s", d)
		w.store.lossy = w.at + d
	case 20, 21:
		w.unheard(w.seconds(5, 40))
	}
	if w.rng.IntN(80) == 0 {
		w.outage(w.seconds(15, 50))
	}
}

// outage takes the Distributors from their subscribers: they die, alone or with all
// assigners, or the clerks do not reach them. It lasts for d, or a little longer.
func (w *world) outage(d time.Duration) {
	w.check.backup.outages++
	all := func(hosts []*host) {
		silently := w.rng.IntN(2) == 0
		for _, h := range hosts {
			w.killed(h, silently, d+w.seconds(0, 5))
		}
	}
	var distributors, assigners []*host
	for _, h := range w.distributors {
		distributors = append(distributors, h.host)
	}
	for _, h := range w.assigners {
		assigners = append(assigners, h.host)
	}
	switch w.rng.IntN(3) {
	case 0:
		w.note("all Distributors die")
		all(distributors)
	case 1:
		w.note("all Distributors and assigners die")
		all(append(distributors, assigners...))
	case 2:
		w.note("clerks do not reach Distributors")
		for _, c := range w.clerks {
			for _, o := range distributors {
				w.cut(c.host, o)
				w.later(d, func() { w.mend(c.host, o) })
			}
		}
	}
}

// deserted is an outage with nothing else amiss, but that some programs start anew: in it
// every subscriber that no Distributor serves has the newest from the Backup ones.
func (w *world) deserted() {
	const lasts = 45 * time.Second
	began := w.at
	w.outage(lasts)
	for range 3 {
		w.run(w.at + w.seconds(1, 4))
		w.killed(w.someSlicelet().host, false, w.seconds(0, 3))
	}
	w.killed(w.clerks[0].host, false, time.Second)
	// The longest silence of a Distributor, and then the longest patience.
	w.run(began + 38*time.Second)
	for w.at < w.check.last+arrive && w.at < began+lasts-time.Second {
		w.run(w.at + time.Second)
	}
	w.check.onBackup()
	w.run(began + lasts + 10*time.Second)
}

// brake has an operator give an order, and take it back after a while. There is one
// at a time.
func (w *world) brake() {
	s := w.store
	if w.braked {
		return
	}
	w.braked = true
	stamp := store.Stamp{Who: "operator", When: epoch}
	s.order(func(c *store.Overrides) {
		switch w.rng.IntN(3) {
		case 0:
			w.note("the job is frozen")
			c.Freeze = &store.Freeze{Stamp: stamp, Order: c.Version}
		case 1:
			x := store.Exclusion{Stamp: stamp, Order: c.Version, Task: w.someSlicelet().name}
			w.note("%s is excluded", x.Task)
			c.Exclude = []store.Exclusion{x}
		case 2:
			at := assignment.SliceKey(w.rng.Uint64N(uint64(assignment.KeyspaceEnd) / 64 * 63))
			p := store.Pin{Stamp: stamp, Order: c.Version, Task: w.someSlicelet().name, Slice: assignment.Slice{Start: at, End: at + assignment.KeyspaceEnd/64}}
			w.note("%s is pinned to %s", p.Slice, p.Task)
			c.Pins = []store.Pin{p}
		}
	})
	w.later(w.seconds(5, 40), w.release)
}

// release takes an operator's order back.
func (w *world) release() {
	if !w.braked {
		return
	}
	w.note("the operator's order is taken back")
	w.braked = false
	w.store.order(func(c *store.Overrides) {
		if c.Freeze != nil {
			c.Thaws++
		}
		c.Freeze, c.Exclude, c.Pins = nil, nil, nil
	})
}

// unheard cuts one Distributor or two off from the assigner in charge or from all, one
// way at first or both.
func (w *world) unheard(d time.Duration) {
	from := w.assigners
	if a := w.charged(); a != nil && w.rng.IntN(2) == 0 {
		from = []*assignerHost{a}
	}
	way := w.rng.IntN(4)
	for _, i := range w.rng.Perm(len(w.distributors))[:1+w.rng.IntN(len(w.distributors)-1)] {
		x := w.distributors[i].host
		w.note("%s is cut off from %d assigners for %s", x.name, len(from), d)
		for _, a := range from {
			switch way {
			case 0:
				w.deaf(x, a.host, d)
			case 1:
				w.deaf(a.host, x, d)
			default:
				w.cut(x, a.host)
				w.later(d, func() { w.mend(x, a.host) })
			}
		}
	}
}

// charged is the assigner that the store's candidates make preferred, nil if none.
func (w *world) charged() *assignerHost {
	c, _ := preference.Choose(w.store.view(), job, "")
	for _, a := range w.assigners {
		if a.name == c.ID {
			return a
		}
	}
	return nil
}

// lateNews has what a task says be held up on its way, and the task die meanwhile.
func (w *world) lateNews(s *sliceletHost) {
	w.note("what %s says is held up", s.name)
	for _, d := range w.distributors {
		w.cut(s.host, d.host)
		w.later(8*time.Second, func() { w.mend(s.host, d.host) })
	}
	w.later(w.seconds(1, 4), func() { w.killed(s.host, true, w.seconds(20, 40)) })
}

// massDeath ends most tasks at once, out of the blue.
func (w *world) massDeath() {
	n := len(w.slicelets)*7/10 + w.rng.IntN(len(w.slicelets)*3/10)
	w.check.vanished = w.at
	w.note("%d of %d tasks vanish", n, len(w.slicelets))
	for _, i := range w.rng.Perm(len(w.slicelets))[:n] {
		s := w.slicelets[i]
		w.killed(s.host, w.rng.IntN(2) == 0, w.seconds(6, 60))
	}
}

// heal takes back what was done.
func (w *world) heal() {
	w.note("no more faults")
	w.healed = true
	for p, s := range w.cuts {
		for range s.cuts {
			w.mendWay(w.hosts[p[0]], w.hosts[p[1]])
		}
	}
	w.store.lossy = 0
	for _, h := range w.hosts {
		h.resume()
		h.start()
	}
	w.release()
}

const (
	// A run: a time to begin, to suffer, and to recover.
	lifetime  = 6 * time.Minute
	beginning = 20 * time.Second
	suffering = lifetime - beginning - calm
	// arrive is how long an assignment takes to the last.
	arrive = 3 * time.Second
)

// live runs a world to its end, and returns what was found to be wrong.
func live(seed uint64, n size) (w *world, wrong string) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case failure:
			wrong = x.text
		default:
			panic(x)
		}
	}()
	w = newWorld(seed, n)
	w.run(beginning)
	w.traffic.begin()
	switch w.rng.IntN(4) {
	case 0:
		w.massDeath()
		w.run(w.at + 40*time.Second)
	case 1:
		w.deserted()
	}
	for w.at < beginning+suffering {
		w.fault()
		w.run(w.at + w.seconds(0, 12))
	}
	w.heal()
	w.run(w.at + calm)
	for range 10 { // what was written just now has to get around
		w.run(max(w.at, w.check.last+arrive))
	}
	w.check.settled()
	w.end()
	return w, ""
}

// end gives back what others can use again.
func (w *world) end() {
	w.queue.reset()
	rooms.Put(w.queue)
}
