package page

import (
	"strconv"
	"sync"
	"time"
)

const (
	// chartPoints are kept, at least chartStep apart: of 20 minutes.
	chartPoints = 240
	chartStep   = 5 * time.Second
)

// chart is a job's imbalance over time, as far as it was read or the history tells.
type chart struct {
	mu     sync.Mutex
	points []point
	seeded bool
}

type point struct {
	at    int64 // Unix milliseconds
	value num
}

// add takes a reading, unless one was taken less than chartStep before.
func (c *chart) add(now time.Time, value float64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := point{now.UnixMilli(), num(value)}
	if n := len(c.points); n > 0 && at.at-c.points[n-1].at < chartStep.Milliseconds() {
		return
	}
	if len(c.points) == chartPoints {
		c.points = append(c.points[:0], c.points[1:]...)
	}
	c.points = append(c.points, at)
}

// seed puts older points before those that were read; only the first time.
func (c *chart) seed(older []point) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seeded {
		return
	}
	c.seeded = true
	var all []point
	for _, p := range older {
		if len(c.points) > 0 && p.at >= c.points[0].at {
			break
		}
		all = append(all, p)
	}
	all = append(all, c.points...)
	c.points = all[max(0, len(all)-chartPoints):]
}

func (c *chart) wantsSeed() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.seeded
}

// newest are the last n values.
func (c *chart) newest(n int) []num {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var values []num
	for _, p := range c.points[max(0, len(c.points)-n):] {
		values = append(values, p.value)
	}
	return values
}

// json is times and values as one list.
func (c *chart) json() []byte {
	if c == nil {
		return []byte("[]")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := []byte{'['}
	for i, p := range c.points {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, p.at, 10)
		b = append(b, ',')
		b = p.value.append(b)
	}
	return append(b, ']')
}

// num is a measured value, of which four digits are told.
type num float64

func (n num) append(b []byte) []byte {
	if !(n > -1e300 && n < 1e300) {
		return append(b, '0')
	}
	return strconv.AppendFloat(b, float64(n), 'g', 4, 64)
}

// MarshalJSON implements json.Marshaler.
func (n num) MarshalJSON() ([]byte, error) { return n.append(nil), nil }
