package fanout

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Limiter limits the whole assignments that are on their way to subscribers of all jobs.
// See limiter.Wholes.
type Limiter interface {
	// Acquire reports whether a subscriber may be sent a whole assignment. If not it
	// waits, and a Tick is due when it may: Granted names it then.
	Acquire(now time.Time, id uint64, key string, class, bytes int) bool
	Release(now time.Time, id uint64)
	Waits(id uint64) bool
	Granted(now time.Time) []uint64
	// Next is when a subscriber that waits may be granted, zero if there is none.
	Next() time.Time
}

// Observer is told what metrics are made of.
type Observer interface {
	Subscribers(role slicerv1.Role, by int)
	Unacknowledged(is bool)
	Slow(now time.Time, total int, worst []Slow)
	Behind(n int)
	Converged(took time.Duration)
	Reached(role slicerv1.Role, took time.Duration)
	Generation(a *assignment.Assignment)
	Base()
	Refused()
	Report()
	MovedAway()
}

// unlimited limits nothing.
type unlimited struct{}

func (unlimited) Acquire(time.Time, uint64, string, int, int) bool { return true }
func (unlimited) Release(time.Time, uint64)                        {}
func (unlimited) Waits(uint64) bool                                { return false }
func (unlimited) Granted(time.Time) []uint64                       { return nil }
func (unlimited) Next() time.Time                                  { return time.Time{} }

// unobserved takes no notice.
type unobserved struct{}

func (unobserved) Subscribers(slicerv1.Role, int)       {}
func (unobserved) Unacknowledged(bool)                  {}
func (unobserved) Slow(time.Time, int, []Slow)          {}
func (unobserved) Behind(int)                           {}
func (unobserved) Converged(time.Duration)              {}
func (unobserved) Reached(slicerv1.Role, time.Duration) {}
func (unobserved) Generation(*assignment.Assignment)    {}
func (unobserved) Base()                                {}
func (unobserved) Refused()                             {}
func (unobserved) Report()                              {}
func (unobserved) MovedAway()                           {}
