package slicelet

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/slicer-project/slicer/assignment"
)

// meter counts requests and custom load where they arrive: by slice and part,
// and the heaviest keys.
//
// There is a stripe for each core, which whoever counts has for itself: sync.Pool
// gives a goroutine the stripe that was last used on its core, so that the
// counters stay in that core's cache. A stripe's lock is therefore practically
// never contended; when it is, because the collector is at it or its holder was
// interrupted, the next stripe is taken instead.
type meter struct {
	stripes []stripe
	mask    uint32
	next    atomic.Uint32
	pool    sync.Pool

	mu    sync.Mutex // of those who go through all stripes
	spare []*sketch  // clean
}

// stripe is guarded by its lock.
type stripe struct {
	lock atomic.Uint32
	lay  *layout
	load [2]tally // by metric
	n    counts
	_    [128]byte // to where no two stripes share a pair of cache lines
}

// The metrics that are counted. CPU is not: it is shared out by requests.
const (
	requests = iota
	custom
)

// tally is the load of one metric.
type tally struct {
	cells  []float64 // by cell of the layout; nil if nothing was counted
	sketch *sketch   // likewise
	// lost is load that came to no cell: in no slice, or in one of another layout.
	lost float64
}

// counts are of requests.
type counts struct {
	requests, misrouted, shed uint64
}

func (c *counts) add(d counts) {
	c.requests += d.requests
	c.misrouted += d.misrouted
	c.shed += d.shed
}

const maxStripes = 128

func newMeter() *meter {
	n := 1
	for n < runtime.GOMAXPROCS(0) && n < maxStripes {
		n *= 2
	}
	m := &meter{stripes: make([]stripe, n), mask: uint32(n - 1)}
	empty := newLayout(nil)
	for i := range m.stripes {
		m.stripes[i].lay = empty
	}
	m.pool.New = func() any { return m.other() }
	return m
}

func (m *meter) other() *stripe { return &m.stripes[m.next.Add(1)&m.mask] }

// acquire returns a stripe with its lock held.
func (m *meter) acquire() *stripe {
	s := m.pool.Get().(*stripe)
	for tries := 0; !s.lock.CompareAndSwap(0, 1); tries++ {
		if tries > len(m.stripes) {
			runtime.Gosched()
		}
		s = m.other()
	}
	return s
}

func (m *meter) release(s *stripe) {
	s.lock.Store(0)
	m.pool.Put(s)
}

// request counts one for a key in the i-th slice of lay, in none if i is -1.
func (m *meter) request(k assignment.SliceKey, lay *layout, i int, owned bool) {
	s := m.acquire()
	s.n.requests++
	if !owned {
		s.n.misrouted++
	}
	s.add(requests, k, lay, i, 1)
	m.release(s)
}

// custom counts load in the custom metric.
func (m *meter) custom(k assignment.SliceKey, lay *layout, i int, load float64) {
	s := m.acquire()
	s.add(custom, k, lay, i, load)
	m.release(s)
}

// shed counts a request that was counted before as refused for want of room.
func (m *meter) shed() {
	s := m.acquire()
	s.n.shed++
	m.release(s)
}

func (s *stripe) add(metric int, k assignment.SliceKey, lay *layout, i int, load float64) {
	t := &s.load[metric]
	if lay != s.lay && i >= 0 { // the assignment is changing at this moment
		i = s.lay.find(k)
	}
	if i < 0 {
		t.lost += load
		return
	}
	if t.cells == nil {
		t.begin(s.lay)
	}
	t.cells[s.lay.cell(i, k)] += load
	t.sketch.add(k, load)
}

func (t *tally) begin(lay *layout) {
	t.cells = make([]float64, lay.cells())
	if t.sketch == nil {
		t.sketch = new(sketch)
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
		s.lock.Store(0)
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
func (m *meter) relay(lay *layout) (cells [2][]float64, hot [2][]heavy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var copies [2][]*sketch
	m.each(func(s *stripe) {
		s.lay = lay
		for i := range s.load {
			t := &s.load[i]
			cells[i] = sum(cells[i], t.cells)
			t.cells = nil
			if t.sketch != nil {
				c := *t.sketch
				copies[i] = append(copies[i], &c)
			}
		}
	})
	for i := range hot {
		hot[i] = merge(copies[i])
	}
	return cells, hot
}

// taken is what take returns, by metric where there are two.
type taken struct {
	cells [2][]float64 // of the layout in use, nil if nothing was counted
	lost  [2]float64
	hot   [2][]heavy
	n     counts
}

// take returns what was counted since the last take, the cells' since relay if
// that is later, and begins anew.
func (m *meter) take() (t taken) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var used [2][]*sketch
	m.each(func(s *stripe) {
		for i := range s.load {
			l := &s.load[i]
			t.cells[i] = sum(t.cells[i], l.cells)
			clear(l.cells)
			t.lost[i] += l.lost
			l.lost = 0
			if l.sketch != nil {
				used[i] = append(used[i], l.sketch)
				l.sketch = m.clean()
			}
		}
		t.n.add(s.n)
		s.n = counts{}
	})
	for i := range used {
		t.hot[i] = merge(used[i])
		for _, s := range used[i] {
			*s = sketch{}
		}
		m.spare = append(m.spare, used[i]...)
	}
	return t
}

// clean returns an empty sketch, under m.mu.
func (m *meter) clean() *sketch {
	if n := len(m.spare); n > 0 {
		s := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return s
	}
	return new(sketch)
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
