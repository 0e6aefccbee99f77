package slicelet

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/percore"
)

// meter counts requests and custom load where they arrive: by slice and part,
// and the heaviest keys.
//
// There is a stripe for each core, so that its counters stay in that core's cache
// and its lock is practically never contended; when it is, because the collector
// is at it or its holder was interrupted, the next stripe is taken instead.
type meter struct {
	stripes []stripe
	mask    uint

	mu sync.Mutex // of callers that go through all stripes
}

// stripe is guarded by its lock.
type stripe struct {
	lock atomic.Uint32
	lay  *layout
	n    counts
	load [metrics]tally
	_    [136]byte // to where no two stripes share a pair of cache lines
}

// The metrics that are counted. CPU is not: it is shared out by the time that requests
// took, or by requests where their times are not known.
const (
	requests = iota
	custom
	spent // seconds
	// refused is no metric of its own: requests that there was no room for, and those that
	// trial requests stand for, which are load all the same (measurement.demand).
	refused
	metrics
)

// tally is the load of one metric.
type tally struct {
	cells  []float64 // by cell of the layout; nil if nothing was counted
	sketch sketch
	// lost is load that came to no cell: in no slice, or in one of another layout.
	lost float64
	used bool // there was ever any
}

// counts are of requests.
type counts struct {
	requests, misrouted, shed uint64
	held                      float64
}

func (c *counts) add(d counts) {
	c.requests += d.requests
	c.misrouted += d.misrouted
	c.shed += d.shed
	c.held += d.held
}

// served is how many there was room for. More may be shed in a window than came in it.
func (c *counts) served() float64 { return float64(c.requests - min(c.shed, c.requests)) }

const maxStripes = 128

func newMeter() *meter {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < maxStripes {
		n *= 2
	}
	m := &meter{stripes: make([]stripe, n), mask: uint(n - 1)}
	empty := newLayout(nil)
	for i := range m.stripes {
		m.stripes[i].lay = empty
	}
	return m
}

func (s *stripe) release() { s.lock.Store(0) }

// request counts one for a key in the i-th slice of lay, in none if i is -1.
func (m *meter) request(k assignment.SliceKey, lay *layout, i int, owned bool) {
	m.count(k, lay, i, requests, 1, counts{requests: 1, misrouted: uint64(bit(!owned))})
}

// custom counts load in the custom metric.
func (m *meter) custom(k assignment.SliceKey, lay *layout, i int, load float64) {
	m.count(k, lay, i, custom, load, counts{})
}

// took counts the time that a request took which was counted before.
func (m *meter) took(k assignment.SliceKey, lay *layout, i int, seconds float64) {
	m.count(k, lay, i, spent, seconds, counts{})
}

// shed counts a request that was counted before as refused for want of room, and as demand
// if it is one.
func (m *meter) shed(k assignment.SliceKey, lay *layout, i int, demand bool) {
	m.count(k, lay, i, requests, -1, counts{shed: 1})
	if demand {
		m.count(k, lay, i, refused, 1, counts{})
	}
}

// held counts requests that clients have not sent, as demand.
func (m *meter) held(k assignment.SliceKey, lay *layout, i int, n float64) {
	m.count(k, lay, i, refused, n, counts{held: n})
}

// count does all of it in one, since each call would be felt. The load is of a key in
// the i-th slice of lay, in none if i is -1.
func (m *meter) count(k assignment.SliceKey, lay *layout, i, metric int, load float64, n counts) {
	cell := lay.cell(i, k)
	// The goroutine may be on another core the moment after: the number only says
	// which stripe is near, and it is the lock that keeps others out.
	core := uint(percore.Pin())
	percore.Unpin()
	s := &m.stripes[core&m.mask]
	if !s.lock.CompareAndSwap(0, 1) {
		s = m.another(core)
	}
	s.n.add(n)
	if lay != s.lay && cell >= 0 { // the assignment is changing at this moment
		cell = s.lay.cell(s.lay.find(k), k)
	}
	if t := &s.load[metric]; cell < 0 {
		t.lost += load
	} else {
		if t.cells == nil {
			t.cells, t.used = make([]float64, s.lay.cells()), true
		}
		t.cells[cell] += load
		if metric == refused {
			load = n.held // the sketch of requests has what was sent
		}
		if load > 0 {
			t.sketch.add(k, load)
		}
	}
	s.release()
}

// another returns a stripe with its lock held, that of the core only as the last.
func (m *meter) another(core uint) *stripe {
	for {
		for range m.stripes {
			core++
			if s := &m.stripes[core&m.mask]; s.lock.CompareAndSwap(0, 1) {
				return s
			}
		}
		runtime.Gosched()
	}
}

// each calls f for each stripe, one after the other, with its lock held.
func (m *meter) each(f func(*stripe)) {
	for i := range m.stripes {
		s := &m.stripes[i]
		for !s.lock.CompareAndSwap(0, 1) {
			runtime.Gosched()
		}
		f(s)
		s.release()
	}
}

// total is how many requests have been counted since the last take.
func (m *meter) total() (n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.each(func(s *stripe) { n += s.n.requests })
	return n
}

// relay makes lay the layout that is counted by and returns, in the cells of
// the one before, what was counted since take or relay. What the sketches have
// goes on.
func (m *meter) relay(lay *layout) (cells [metrics][]float64, hot [metrics][]heavy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var copies [metrics][]*sketch
	m.each(func(s *stripe) {
		s.lay = lay
		for i := range s.load {
			t := &s.load[i]
			cells[i] = sum(cells[i], t.cells)
			t.cells = nil
			if t.used {
				c := t.sketch
				copies[i] = append(copies[i], &c)
			}
		}
	})
	for i := range hot {
		hot[i] = merge(copies[i])
	}
	return cells, hot
}

// hot is what sketches have seen since the last take, and all requests since.
func (m *meter) hot() (hot [metrics][]heavy, n counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var copies [metrics][]*sketch
	m.each(func(s *stripe) {
		n.add(s.n)
		for i := range s.load {
			if t := &s.load[i]; t.used {
				c := t.sketch
				copies[i] = append(copies[i], &c)
			}
		}
	})
	for i := range hot {
		hot[i] = merge(copies[i])
	}
	return hot, n
}

// taken is what take returns, by metric where there are several.
type taken struct {
	cells [metrics][]float64 // of the layout in use, nil if nothing was counted
	lost  [metrics]float64
	hot   [metrics][]heavy
	n     counts
}

// take returns what was counted since the last take, the cells' since relay if
// that is later, and begins anew.
func (m *meter) take() (t taken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sketches [metrics][]*sketch
	m.each(func(s *stripe) {
		for i := range s.load {
			l := &s.load[i]
			t.cells[i] = sum(t.cells[i], l.cells)
			clear(l.cells)
			t.lost[i] += l.lost
			l.lost = 0
			if l.used {
				c := l.sketch
				sketches[i] = append(sketches[i], &c)
				l.sketch = sketch{}
			}
		}
		t.n.add(s.n)
		s.n = counts{}
	})
	for i := range sketches {
		t.hot[i] = merge(sketches[i])
	}
	return t
}

// sum adds b to a, of which either may be nil for nothing; a is changed.
func sum(a, b []float64) []float64 {
	if a == nil && b != nil {
		a = make([]float64, len(b))
	}
	for i, v := range b {
		a[i] += v
	}
	return a
}
