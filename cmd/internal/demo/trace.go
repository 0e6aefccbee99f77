package demo

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// traceInfo is what a first pass over a trace finds out.
type traceInfo struct {
	records     int64
	first, last int64 // Unix milliseconds
	weighted    bool  // some load is not 1
	malformed   sim.LeftOut
}

func scanTrace(path string) (traceInfo, error) {
	info := traceInfo{first: math.MaxInt64, last: math.MinInt64}
	r, err := sim.OpenTrace(path)
	if err != nil {
		return info, err
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return info, err
		}
		info.records++
		info.first, info.last = min(info.first, rec.UnixMS), max(info.last, rec.UnixMS)
		info.weighted = info.weighted || rec.Load != 1
	}
	info.malformed = r.Malformed
	if info.records == 0 {
		return info, fmt.Errorf("%s: the trace is empty", path)
	}
	return info, nil
}

// room is the part of a run that a trace takes up, so that its last record is answered
// before the run is over.
const room = .98

// plan works out how long the run takes and how fast the replay goes. A trace
// whose records all have one time is spread evenly.
func (i traceInfo) plan(c *Config) (d time.Duration, speed float64, err error) {
	span := time.Duration(i.last-i.first) * time.Millisecond
	if c.Speed == 0 || span <= 0 {
		return c.Duration, float64(span) / float64(c.Duration) / room, nil
	}
	d = time.Duration(min(float64(span)/c.Speed/room, float64(maxDuration)))
	if c.durationSet {
		d = min(d, c.Duration)
	}
	if d < MinDuration {
		return 0, 0, fmt.Errorf("--speed: at %g the trace lasts %s, at least %s are needed to show anything: want at most %g",
			c.Speed, d.Round(time.Millisecond), MinDuration, math.Floor(float64(span)/float64(MinDuration)/room))
	}
	return d, c.Speed, nil
}

// replay yields a trace's records as calls.
type replay struct {
	r     *sim.TraceReader
	info  traceInfo
	speed float64
	d     time.Duration
	n     int64
	last  time.Duration
}

func newReplay(path string, info traceInfo, d time.Duration, speed float64) (*replay, error) {
	r, err := sim.OpenTrace(path)
	if err != nil {
		return nil, err
	}
	return &replay{r: r, info: info, speed: speed, d: d}, nil
}

func (t *replay) next() (arrival, bool, error) {
	rec, err := t.r.Next()
	if errors.Is(err, io.EOF) {
		return arrival{}, false, nil
	}
	if err != nil {
		return arrival{}, false, err
	}
	at := time.Duration(float64(t.n) / float64(t.info.records) * float64(t.d) * room)
	if t.speed > 0 {
		at = time.Duration(float64(rec.UnixMS-t.info.first) * float64(time.Millisecond) / t.speed)
	}
	t.n++
	// Logs are written when requests end, so they are not quite in order.
	t.last = max(t.last, at)
	return arrival{at: t.last, key: rec.Key, load: rec.Load}, true, nil
}

func (t *replay) Close() error { return t.r.Close() }
