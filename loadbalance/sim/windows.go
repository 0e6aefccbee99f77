package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

const (
	// maxOpenKeys bounds the memory that the open windows of a trace may take.
	maxOpenKeys = 1 << 24
	// leastSlackMS is how far out of order records may be at any interval: servers
	// note requests when they end, some with the time at which they began.
	leastSlackMS = 60_000
)

// traceSource cuts a trace into windows. Those that a record may still belong to
// are open.
type traceSource struct {
	in              *TraceReader
	interval, slack int64
	start           int64 // of the first window
	newest          int64 // time
	newestLine      int
	ended           bool
	open            []openWindow // in order
	keys            int          // of all open windows
	unused          []map[assignment.SliceKey]float64
	w               Window
}

type openWindow struct {
	n   int64 // place in the trace, from 0
	sum map[assignment.SliceKey]float64
}

// Windows cuts a trace into windows of interval milliseconds, the first of which
// begins with the first record. Windows without traffic are left out.
//
// Records may be out of order by an interval, or a minute if that is longer, as
// access logs are. Those that come later than that are left out and counted as
// the reader's Early, as their windows are over; if they are more than ten and
// more than 1 %, the source's last error is that instead of io.EOF.
func Windows(r *TraceReader, intervalMS int64) (Source, error) {
	if intervalMS < 1 {
		return nil, &assignment.FieldError{Field: "interval", Value: intervalMS, Allowed: "at least 1 ms"}
	}
	return &traceSource{in: r, interval: intervalMS, slack: max(intervalMS, leastSlackMS)}, nil
}

func (s *traceSource) Next() (Window, error) {
	for !s.over() {
		rec, err := s.in.Next()
		switch {
		case errors.Is(err, io.EOF):
			s.ended = true
		case err != nil:
			return Window{}, err
		case !s.add(rec):
			s.in.Early.add("records out of order", s.early(rec.UnixMS))
		case s.keys > maxOpenKeys:
			return Window{}, s.wrong("", fmt.Errorf("more than %d keys in one window: choose a shorter interval", maxOpenKeys))
		}
	}
	if len(s.open) > 0 {
		return s.take(), nil
	}
	if err := s.in.Early.check("give rotated logs oldest first, or sort the trace by time, a CSV with sort -t, -k1,1n; "); err != nil {
		return Window{}, err
	}
	return Window{}, io.EOF
}

// over reports whether the first open window is, or there will be none.
func (s *traceSource) over() bool {
	return s.ended || len(s.open) > 0 && s.start+(s.open[0].n+1)*s.interval <= s.newest-s.slack
}

// add counts a record in its window, unless that may be over.
func (s *traceSource) add(rec Record) bool {
	if s.in.Early.Of++; s.in.Early.Of == 1 {
		s.start, s.newest = rec.UnixMS, rec.UnixMS
	}
	if rec.UnixMS < s.newest-s.slack {
		return false
	}
	if rec.UnixMS >= s.newest {
		s.newest, s.newestLine = rec.UnixMS, s.in.line
	}
	w := s.window(max(rec.UnixMS-s.start, 0) / s.interval)
	had := len(w)
	w[assignment.KeyOf(rec.Key)] += rec.Load
	s.keys += len(w) - had
	return true
}

// window opens the nth, unless it is open.
func (s *traceSource) window(n int64) map[assignment.SliceKey]float64 {
	if last := len(s.open) - 1; last >= 0 && s.open[last].n == n {
		return s.open[last].sum
	}
	i, ok := slices.BinarySearchFunc(s.open, n, func(w openWindow, n int64) int { return cmp.Compare(w.n, n) })
	if !ok {
		sum := make(map[assignment.SliceKey]float64)
		if last := len(s.unused) - 1; last >= 0 {
			sum, s.unused = s.unused[last], s.unused[:last]
		}
		s.open = slices.Insert(s.open, i, openWindow{n, sum})
	}
	return s.open[i].sum
}

// take closes the first window.
func (s *traceSource) take() Window {
	first := s.open[0]
	s.w.StartMS = s.start + first.n*s.interval
	s.w.Keys, s.w.Load = s.w.Keys[:0], s.w.Load[:0]
	for k := range first.sum {
		s.w.Keys = append(s.w.Keys, k)
	}
	slices.Sort(s.w.Keys)
	for _, k := range s.w.Keys {
		s.w.Load = append(s.w.Load, first.sum[k])
	}
	s.keys -= len(first.sum)
	clear(first.sum)
	s.open, s.unused = slices.Delete(s.open, 0, 1), append(s.unused, first.sum)
	return s.w
}

// early says what is wrong with a time that is left out.
func (s *traceSource) early(ms int64) *TraceError {
	before := time.Duration(s.newest-ms) * time.Millisecond
	return s.wrong(s.in.field, fmt.Errorf("%s before that of line %d", before, s.newestLine))
}

// wrong is about the record that was read last.
func (s *traceSource) wrong(field string, err error) *TraceError {
	return &TraceError{Path: s.in.name, Line: s.in.line, Field: field, Err: err}
}
