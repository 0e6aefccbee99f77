package cluster

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"
)

var epoch = time.UnixMilli(1_700_000_000_000)

// sinceEpoch is t.Sub(epoch), and cheaper.
func sinceEpoch(t time.Time) time.Duration { return time.Duration(t.UnixNano() - epoch.UnixNano()) }

// world is the time, what is to happen, and who there is.
type world struct {
	seed  uint64
	at    time.Duration
	time  time.Time // is at
	queue *events
	seq   uint64
	rng   *rand.Rand // of the faults

	hosts []*host
	conns []*conn
	cuts  map[pair]severed
	// touched is when a way was last cut or mended, or a connection on it lost.
	touched map[pair]time.Duration

	braked bool // an operator's order is in force

	store        *storage
	assigners    []*assignerHost
	distributors []*distributorHost
	backups      []*backupHost
	servers      map[string]server // of subscribers, by name
	slicelets    []*sliceletHost
	clerks       []*clerkHost

	named   map[string]*sliceletHost
	healed  bool // there are no more faults
	traffic *traffic
	load    *load
	decoder decoder
	packets pool[packet]
	timers  pool[timer]
	alarms  pool[alarm]
	check   *checker
	trace   []string
	events  int
	times   uint64 // a checksum of when they happened
}

// server is who takes subscribers.
type server struct {
	*host
	accept func(c *conn) (recv func(any), ended func(error))
}

// failure is how a run ends that finds something wrong.
type failure struct{ text string }

func (w *world) fail(format string, args ...any) {
	panic(failure{fmt.Sprintf("at %s: ", w.at) + fmt.Sprintf(format, args...)})
}

// maxTrace is how many of the last happenings are shown with a failure.
const maxTrace = 60

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%10.3f ", w.at.Seconds())+fmt.Sprintf(format, args...))
	if len(w.trace) > 2*maxTrace {
		w.trace = append([]string(nil), w.trace[maxTrace:]...)
	}
}

// pool keeps what has happened to be used again.
type pool[T any] struct{ free []*T }

func (p *pool[T]) get() *T {
	if n := len(p.free); n > 0 {
		x := p.free[n-1]
		p.free = p.free[:n-1]
		return x
	}
	return new(T)
}

func (p *pool[T]) put(x *T) { p.free = append(p.free, x) }

func (w *world) schedule(at time.Duration, key uint64, do func()) { w.enqueue(at, key, call(do)) }

func (w *world) enqueue(at time.Duration, key uint64, what happening) {
	w.seq++
	w.queue.push(max(at, w.at), key, w.seq, what)
}

// run lets things happen until a time.
func (w *world) run(until time.Duration) {
	for {
		at, what, ok := w.queue.pop(until)
		if !ok {
			break
		}
		w.set(at)
		w.events++
		w.times = (w.times ^ uint64(at)) * 0xd6e8feb86659fd93
		what.happen()
	}
	w.set(until)
}

func (w *world) set(at time.Duration) { w.at, w.time = at, epoch.Add(at) }

// hash makes one number of several, the same for the same seed.
func (w *world) hash(parts ...uint64) uint64 {
	h := w.seed ^ 0x9e3779b97f4a7c15
	for _, p := range parts {
		hi, lo := bits.Mul64(h^p, 0xd6e8feb86659fd93)
		h = hi ^ lo ^ bits.RotateLeft64(p, 23)
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

// between is a time drawn by a hash.
func between(h uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(h%uint64(most-least+1))
}

// host is a machine with one process on it.
type host struct {
	w    *world
	id   int
	name string
	up   bool
	// life is another one for each process that has run here.
	life   uint64
	born   time.Duration
	paused bool
	held   []func()      // what came in while it was paused
	wellAt time.Duration // since when it runs without a pause
	skew   time.Duration
	boot   func() // starts the process
	die    func() // what its death means to the rest of the program

	severed []bool // by host: what it sends does not reach that one

	// What is to be done whenever something is due, when that is, and when a timer
	// for it goes off: then or sooner.
	due    func()
	dueAt  time.Duration
	timer  uint64
	armed  bool
	goesAt time.Duration
}

func (w *world) newHost(name string) *host {
	h := &host{w: w, id: len(w.hosts), name: name}
	w.hosts = append(w.hosts, h)
	return h
}

// do has the process that runs now take something in, when it can.
func (h *host) do(f func()) {
	life := h.life
	switch {
	case !h.up:
	case h.paused:
		h.held = append(h.held, func() {
			if h.up && h.life == life {
				f()
			}
		})
	default:
		f()
	}
}

// runs reports whether its process takes in what comes at once.
func (h *host) runs() bool { return h.up && !h.paused }

// after is do at a later time, unless the process has ended by then.
func (h *host) after(d time.Duration, f func()) { h.timed(d, uint64(h.id), f) }

// soon is do after what happens now, for several things in the order of key, in
// whatever order they are asked for.
func (h *host) soon(key uint64, f func()) { h.timed(0, key, f) }

func (h *host) timed(d time.Duration, key uint64, f func()) {
	t := h.w.timers.get()
	*t = timer{h, h.life, f}
	h.w.enqueue(h.w.at+d, key, t)
}

// timer is what a process has to do at a time.
type timer struct {
	h    *host
	life uint64
	do   func()
}

func (t *timer) happen() {
	x := *t
	x.h.w.timers.put(t)
	if x.h.life == x.life {
		x.h.do(x.do)
	}
}

// wake has due done at a time, in the place of the wake before. It costs an event
// only if the one that is to come is too late.
func (h *host) wake(at time.Duration) {
	h.dueAt = at
	if !h.armed || h.goesAt > at {
		h.arm()
	}
}

func (h *host) arm() {
	h.timer++
	h.armed, h.goesAt = true, max(h.dueAt, h.w.at)
	a := h.w.alarms.get()
	*a = alarm{h, h.life, h.timer}
	h.w.enqueue(h.goesAt, uint64(h.id), a)
}

// alarm is a host's timer for what is due.
type alarm struct {
	h       *host
	life, n uint64
}

func (a *alarm) happen() {
	h, life, n := a.h, a.life, a.n
	h.w.alarms.put(a)
	switch {
	case h.timer != n || h.life != life || !h.up:
	case h.dueAt > h.w.at:
		h.arm()
	default:
		h.armed = false
		h.do(h.due)
	}
}

// mono is the process's monotonic clock, wall the machine's wall clock.
func (h *host) mono() time.Duration { return h.w.at - h.born }
func (h *host) wall() time.Time     { return h.w.time.Add(h.skew) }

// now is a time with which the process measures durations.
func (h *host) now() time.Time { return h.w.time }

func (h *host) start() {
	if h.up {
		return
	}
	h.up, h.paused, h.held, h.born, h.armed = true, false, nil, h.w.at, false
	h.wellAt = h.w.at
	h.life++
	h.boot()
	h.w.check.look()
}

// kill ends the process. Its machine says so to those it is connected to, unless
// it goes silently.
func (h *host) kill(silently bool) {
	if !h.up {
		return
	}
	h.w.note("%s killed, silently: %v", h.name, silently)
	h.up, h.paused, h.held = false, false, nil
	h.w.check.look()
	if h.die != nil {
		h.die()
	}
	for _, c := range slices.Clone(h.w.conns) {
		for side, e := range c.ends {
			if e.host == h && !e.closed {
				if silently {
					c.vanish(side)
				} else {
					c.close(side)
				}
			}
		}
	}
}

func (h *host) pause() {
	if h.up && !h.paused {
		h.w.note("%s paused", h.name)
		h.paused = true
		h.w.check.look()
	}
}

func (h *host) resume() {
	if !h.paused {
		return
	}
	h.w.note("%s goes on", h.name)
	h.paused, h.wellAt = false, h.w.at
	h.w.check.look()
	held := h.held
	h.held = nil
	for i, f := range held {
		if h.paused { // again, by what it took in
			h.held = append(h.held, held[i:]...)
			return
		}
		f()
	}
}
