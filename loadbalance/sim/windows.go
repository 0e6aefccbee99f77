package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/slicer-project/slicer/assignment"
)

// maxWindowKeys bounds the memory that one window of a trace may take.
const maxWindowKeys = 1 << 24

// traceSource cuts a trace into windows.
type traceSource struct {
	next     func() (Record, error)
	interval int64
	start    int64
	began    bool
	pending  *Record
	sum      map[assignment.SliceKey]float64
	keys     []assignment.SliceKey
	load     []float64
}

// Windows cuts a trace into windows of interval milliseconds, the first of which
// begins with the first record. Windows without traffic are left out. A record
// that is earlier than the one before, as access logs have them, counts in the
// window of that one.
func Windows(r *TraceReader, intervalMS int64) (Source, error) {
	if intervalMS < 1 {
		return nil, &assignment.FieldError{Field: "interval", Value: intervalMS, Allowed: "at least 1 ms"}
	}
	return &traceSource{next: r.Next, interval: intervalMS, sum: make(map[assignment.SliceKey]float64)}, nil
}

func (s *traceSource) Next() (Window, error) {
	clear(s.sum)
	var w Window
	for {
		rec, err := s.record()
		if errors.Is(err, io.EOF) && len(s.sum) > 0 {
			break
		}
		if err != nil {
			return Window{}, err
		}
		if !s.began {
			s.start, s.began = rec.UnixMS, true
		}
		if behind := rec.UnixMS - s.start; behind >= s.interval {
			if len(s.sum) > 0 {
				s.pending = &rec
				break
			}
			s.start += behind / s.interval * s.interval
		}
		w.StartMS = s.start
		s.sum[assignment.KeyOf(rec.Key)] += rec.Load
		if len(s.sum) > maxWindowKeys {
			return Window{}, fmt.Errorf("more than %d keys in one window: choose a shorter interval", maxWindowKeys)
		}
	}
	s.keys, s.load = s.keys[:0], s.load[:0]
	for k := range s.sum {
		s.keys = append(s.keys, k)
	}
	slices.Sort(s.keys)
	for _, k := range s.keys {
		s.load = append(s.load, s.sum[k])
	}
	w.Keys, w.Load = s.keys, s.load
	return w, nil
}

func (s *traceSource) record() (Record, error) {
	if s.pending != nil {
		r := *s.pending
		s.pending = nil
		return r, nil
	}
	return s.next()
}
