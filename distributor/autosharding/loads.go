package autosharding

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

// Loads adds up what the clients of one job report to have sent, for the tasks that own
// it, until Take is called for a task. What a client has sent to a range of keys is
// shared out among the slices that it covers by width, and among the replicas of a slice
// equally. Pure, and not safe for concurrent use; the zero value is ready.
//
// Amounts are counted, not rates: reports of several seconds that arrive at
// different times come out right in the mean over the seconds between them.
type Loads struct {
	a      *assignment.Assignment
	amount []float64            // by replica: of the first slice, then of the next
	first  []int                // of each slice, its first replica's place in amount
	owned  [][]share            // by position in the task table
	taken  map[string]time.Time // when each task was last asked for
	began  time.Time
}

// share is one task's part of a slice.
type share struct{ slice, replica int }

// Add adds a report of load under the assignment.
func (l *Loads) Add(now time.Time, a *assignment.Assignment, r *Report) {
	l.follow(now, a)
	for i, start := range r.Starts {
		end := assignment.KeyspaceEnd
		if i+1 < len(r.Starts) {
			end = r.Starts[i+1]
		}
		if start < end && r.Amount[i] > 0 {
			l.spread(assignment.Slice{Start: start, End: end}, r.Amount[i])
		}
	}
}

// Empty says that nothing was ever added.
func (l *Loads) Empty() bool { return l.a == nil }

// Take is what was added for a task since it was last asked for, as rates. It is
// nil if there is nothing, or if the assignment does not name the task.
func (l *Loads) Take(now time.Time, a *assignment.Assignment, task string) *assignment.Load {
	if l.a == nil {
		return nil
	}
	l.follow(now, a)
	pos, ok := a.Position(task)
	if !ok {
		return nil
	}
	if len(l.owned[pos]) > wire.MaxReportRanges {
		return nil // more than a report may say
	}
	since := l.taken[task]
	if since.Before(l.began) {
		since = l.began
	}
	window := now.Sub(since)
	if window <= 0 {
		return nil
	}
	l.taken[task] = now
	out := &assignment.Load{Generation: a.Generation(), Window: min(window, maxWindow), Parts: 1}
	for _, o := range l.owned[pos] {
		rate := l.amount[o.replica] / window.Seconds()
		l.amount[o.replica] = 0
		out.Ranges = append(out.Ranges, a.Slice(o.slice))
		out.Rate = append(out.Rate, rate)
		out.Total += rate
	}
	if out.Total == 0 {
		return nil
	}
	return out
}

// follow goes over to an assignment, with what was counted under the one before.
func (l *Loads) follow(now time.Time, a *assignment.Assignment) {
	if l.a == a {
		return
	}
	old, amount, first := l.a, l.amount, l.first
	l.a, l.amount = a, make([]float64, a.NumOwners())
	l.first, l.owned = make([]int, a.NumSlices()), make([][]share, a.NumTasks())
	n := 0
	for i := range a.NumSlices() {
		l.first[i] = n
		for k := range a.Replicas(i).Len() {
			pos := a.Replicas(i).Position(k)
			l.owned[pos] = append(l.owned[pos], share{i, n})
			n++
		}
	}
	if old == nil {
		l.began, l.taken = now, make(map[string]time.Time)
		return
	}
	for task := range l.taken {
		if _, ok := a.Position(task); !ok {
			delete(l.taken, task)
		}
	}
	for i := range old.NumSlices() {
		sum := 0.0
		for k := range old.Replicas(i).Len() {
			sum += amount[first[i]+k]
		}
		if sum > 0 {
			l.spread(old.Slice(i), sum)
		}
	}
}

// spread shares out what was sent to a range of keys.
func (l *Loads) spread(r assignment.Slice, amount float64) {
	for i := l.a.Find(r.Start); i < l.a.NumSlices(); i++ {
		both, ok := l.a.Slice(i).Intersect(r)
		if !ok {
			return
		}
		n := l.a.Replicas(i).Len()
		each := amount * (float64(both.Width()) / float64(r.Width())) / float64(n)
		for k := range n {
			l.amount[l.first[i]+k] += each
		}
	}
}
