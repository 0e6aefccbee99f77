package demo

import (
	"sync"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// outcome is what became of one call, as its client saw it.
type outcome struct {
	task      string // that answered; empty when none did
	load      float64
	answered  bool // within callLimit
	retried   bool
	misrouted bool // answered by a task that does not own the key, or a retry
	hit       bool // the cache had it
	refused   int  // times, by a task that does not own the key
	// criticality of the call, 0 if it said none.
	criticality overload.Criticality
}

// counts add up outcomes.
type counts struct {
	Requests  int64 `json:"requests"`
	Errors    int64 `json:"errors"`
	Misrouted int64 `json:"misrouted"`
	Retried   int64 `json:"retried"`
	Refused   int64 `json:"refused"`
	Hits      int64 `json:"hits"`
}

func (c *counts) add(o outcome) {
	c.Requests++
	if !o.answered {
		c.Errors++
	}
	if o.misrouted {
		c.Misrouted++
	}
	if o.retried {
		c.Retried++
	}
	if o.hit {
		c.Hits++
	}
	c.Refused += int64(o.refused)
}

func (c counts) minus(d counts) counts {
	return counts{c.Requests - d.Requests, c.Errors - d.Errors, c.Misrouted - d.Misrouted, c.Retried - d.Retried, c.Refused - d.Refused, c.Hits - d.Hits}
}

// availability is the share of calls that were answered in time.
func (c counts) availability() float64 {
	if c.Requests == 0 {
		return 0
	}
	return float64(c.Requests-c.Errors) / float64(c.Requests)
}

// maxLookups bounds the sample of lookup times.
const maxLookups = 1 << 18

// meter is where the clients put what they saw. Safe for concurrent use.
type meter struct {
	mu      sync.Mutex
	total   counts
	carried map[string]float64 // load by task
	lookups []uint32           // nanoseconds

	phase   phase
	aside   counts                           // in the flood and just after it; part of total
	flooded map[overload.Criticality]*counts // in the flood; part of aside
}

// phase is when a call's end is counted.
type phase uint8

const (
	usual      phase = iota
	inFlood          // there are far more calls
	afterFlood       // there are not, for a moment
)

func newMeter() *meter {
	return &meter{carried: map[string]float64{}, flooded: map[overload.Criticality]*counts{}}
}

// lookup takes the time that a lookup took.
func (m *meter) lookup(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lookups) < maxLookups {
		m.lookups = append(m.lookups, uint32(min(d, time.Second)))
	}
}

func (m *meter) record(o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.add(o)
	if m.phase != usual {
		m.aside.add(o)
	}
	if m.phase == inFlood {
		if m.flooded[o.criticality] == nil {
			m.flooded[o.criticality] = new(counts)
		}
		m.flooded[o.criticality].add(o)
	}
	if o.answered {
		m.carried[o.task] += o.load
	}
}

// enter begins a phase.
func (m *meter) enter(p phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = p
}

// flood is what became of calls in the flood, in order of falling criticality, and of all of
// these and those just after it.
func (m *meter) flood() (by []Flooded, aside counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range mix {
		if c := m.flooded[x.criticality]; c != nil {
			by = append(by, Flooded{x.criticality.String(), c.Requests, c.availability()})
		}
	}
	return by, m.aside
}

// snapshot is a copy of what has been counted so far.
type snapshot struct {
	total   counts
	carried map[string]float64
}

func (m *meter) snapshot() snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := snapshot{m.total, make(map[string]float64, len(m.carried))}
	for t, l := range m.carried {
		s.carried[t] = l
	}
	return s
}

// since is what was counted between two snapshots.
func (s snapshot) since(before snapshot) snapshot {
	d := snapshot{s.total.minus(before.total), make(map[string]float64, len(s.carried))}
	for t, l := range s.carried {
		d.carried[t] = l - before.carried[t]
	}
	return d
}

// imbalance is the largest load over the mean of these tasks; 0 without load.
func (s snapshot) imbalance(tasks []string) float64 {
	largest, sum := 0., 0.
	for _, t := range tasks {
		l := s.carried[t]
		largest = max(largest, l)
		sum += l
	}
	if sum == 0 {
		return 0
	}
	return largest * float64(len(tasks)) / sum
}

// lookupTimes are the median and the 99th percentile, nanoseconds.
func (m *meter) lookupTimes() (p50, p99 uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return percentile(m.lookups, .5), percentile(m.lookups, .99)
}

func (c counts) hitRate() float64 {
	if c.Requests == 0 {
		return 0
	}
	return float64(c.Hits) / float64(c.Requests)
}
