package slicelet

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/internal/admission"
)

// recorder turns what the meter counts into load reports, and carries it over
// when the slices change. Its methods take the time.
type recorder struct {
	meter   *meter
	control *admission.Controller
	cpu     func() (time.Duration, bool) // of the process so far; false if not known

	mu         sync.Mutex
	window     window
	generation assignment.Generation
	a          *assignment.Assignment // that the window's slices are of, nil if there is none
	began      time.Time              // of the report's window
	laid       time.Time              // since when the layout has been in use, within the window
	gone       [metrics]float64
	cpuBefore  time.Duration
	sum        counts
	last       *assignment.Load // nil before the first

	perSecond float64 // CPU time that a second's work of a handler takes, 0 if not known

	heavy  atomic.Pointer[overload.HeavyKeys] // of the last window, nil if there are none
	lookAt atomic.Int64                       // unix ns; when refused is to look for them again
}

func newRecorder(m *meter, c *admission.Controller, cpu func() (time.Duration, bool), now time.Time) *recorder {
	r := &recorder{meter: m, control: c, cpu: cpu, window: newWindow(newLayout(nil)), began: now, laid: now}
	r.cpuBefore, _ = cpu()
	return r
}

// lookEvery is how often refused looks for heavy keys, and how long a window must be for that.
const lookEvery = 200 * time.Millisecond

// refused takes that there was no room for a request. If it is handlers that are full, it does
// not wait for the end of the window to look for heavy keys: else clients would be told first
// to hold back whatever key.
func (r *recorder) refused(now time.Time) {
	due := r.lookAt.Load()
	if now.UnixNano() < due || !r.lookAt.CompareAndSwap(due, now.Add(lookEvery).UnixNano()) {
		return
	}
	l := r.control.InForce()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := (measurement{elapsed: now.Sub(r.began)}); l.Can() > 0 && m.elapsed >= lookEvery {
		m.hot, m.n = r.meter.hot()
		if h := m.heavyKeys(l); h != nil && r.heavy.Swap(h) == nil {
			r.control.Reranked()
		}
	}
}

// follow meters by a view's slices from now on.
func (r *recorder) follow(v *view, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = v.generation()
	before := r.a
	r.a = v.a
	others := func(k assignment.SliceKey) bool { return !sameOwners(before, v.a, k) }
	if v.metered == r.window.lay && !slices.ContainsFunc(v.metered.entries, func(e entry) bool { return others(e.start) }) {
		return
	}
	counted, hot := r.meter.relay(v.metered)
	r.window.watch(now.Sub(r.laid).Seconds(), counted)
	was := r.window
	r.window = was.project(v.metered, hot, others)
	for i := range r.gone {
		r.gone[i] += max(amount(was.counted[i])-amount(r.window.counted[i]), 0)
	}
	r.laid = now
}

// sameOwners reports whether a key has the same owners in both assignments, or there is none.
func sameOwners(a, b *assignment.Assignment, k assignment.SliceKey) bool {
	if a == b || a == nil || b == nil {
		return true
	}
	x, y := a.Lookup(k), b.Lookup(k)
	if x.Len() != y.Len() {
		return false
	}
	for i := range x.Len() {
		if !x.At(i).Same(y.At(i)) {
			return false
		}
	}
	return true
}

// measure ends the window and begins the next; the load is of the metric.
func (r *recorder) measure(metric string, now time.Time) *assignment.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.After(r.began) {
		return r.last
	}
	t := r.meter.take()
	r.window.watch(now.Sub(r.laid).Seconds(), t.cells)
	m := measurement{
		window: r.window, elapsed: now.Sub(r.began), generation: r.generation, metric: metric,
		lost: t.lost, gone: r.gone, hot: t.hot, n: t.n, cores: runtime.GOMAXPROCS(0),
	}
	if cpu, ok := r.cpu(); ok {
		m.cpu = max(cpu-r.cpuBefore, 0).Seconds()
		r.cpuBefore = cpu
	}
	m.memory = processMemory()
	r.last, r.perSecond = m.load(), m.perSecond()
	if h := m.heavyKeys(r.control.InForce()); h != nil || m.n.shed == 0 && m.n.held == 0 {
		r.heavy.Store(h) // else the window does not tell: what was refused in it had come before
	}
	r.sum.add(t.n)
	r.window = newWindow(r.window.lay)
	r.gone = [metrics]float64{}
	r.began, r.laid = now, now
	return r.last
}

// newest is the last load measured, nil if none was, and all requests until then.
func (r *recorder) newest() (*assignment.Load, counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.sum
}

func amount(vs []float64) (a float64) {
	for _, v := range vs {
		a += v
	}
	return a
}
