package clerk

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Groups are keys by the tasks that own them, as Clerk.Group finds them.
type Groups struct {
	// Generation is the assignment's by which they were found, 0 if there is none: for
	// Refused.Routed.
	Generation assignment.Generation
	// ByTask has one group for each task, in the order of the assignment's task table.
	ByTask []Group
	// Unowned are the keys that have no owner: all of them as long as there is no assignment
	// (see Ready), and those that are longer than assignment.MaxKeyLen.
	Unowned []string
}

// Group is the keys for which one task is asked.
type Group struct {
	Task assignment.Task
	// Keys are in the order in which they were given; one that was given twice is there twice.
	Keys []string
}

// Group looks many keys up at once, by one assignment, and groups them by owner, so that what
// needs all of them asks each task once. Of several owners of a slice it chooses one by chance for
// all of the slice's keys, rather one that neither drains nor refuses what the clerk's users send by
// default. It counts a selection for each key, and no request: call Requested for each one that is
// sent, as an adapter does. It takes no lock, and as many allocations for any number of keys.
func (c *Clerk) Group(keys []string) Groups {
	a := c.newest.Load()
	if a == nil {
		c.tally.missed.Add(uint64(len(keys)))
		return Groups{Unowned: slices.Clone(keys)}
	}
	g := Groups{Generation: a.Generation()}
	// Above the position of the key's task, below the number of the key: sorted, they are grouped.
	found := make([]uint64, 0, len(keys))
	ch := replicaChoice{c: c, a: a, salt: rand.Uint64()}
	for i, key := range keys {
		if len(key) > assignment.MaxKeyLen {
			g.Unowned = append(g.Unowned, key)
			continue
		}
		found = append(found, uint64(ch.owner(assignment.KeyOf(key)))<<32|uint64(i))
	}
	c.tally.add(uint64(len(found)))
	c.tally.missed.Add(uint64(len(g.Unowned)))
	slices.Sort(found)
	tasks := 0
	for i, f := range found {
		if i == 0 || f>>32 != found[i-1]>>32 {
			tasks++
		}
	}
	g.ByTask = make([]Group, 0, tasks)
	sorted := make([]string, len(found))
	for i, begin := 0, 0; i < len(found); i++ {
		sorted[i] = keys[uint32(found[i])]
		if i+1 == len(found) || found[i]>>32 != found[i+1]>>32 {
			g.ByTask = append(g.ByTask, Group{a.Task(int(found[i] >> 32)), sorted[begin : i+1 : i+1]})
			begin = i + 1
		}
	}
	return g
}

// replicaChoice chooses one owner of each slice.
type replicaChoice struct {
	c        *Clerk
	a        *assignment.Assignment
	salt     uint64
	asked    bool
	avoid    bool
	priority overload.Priority
}

// owner is the position of the task that is asked for a key.
func (r *replicaChoice) owner(k assignment.SliceKey) int {
	slice := r.a.Find(k)
	owners := r.a.Replicas(slice)
	n := owners.Len()
	if n == 1 {
		return owners.Position(0)
	}
	// The same for all keys of the slice, and independent of other slices.
	first := int((r.salt ^ uint64(slice)*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> 32 % uint64(n))
	for i := range n {
		if at := (first + i) % n; r.good(owners.At(at)) {
			return owners.Position(at)
		}
	}
	return owners.Position(first)
}

// good reports whether a task is to be asked if there is a choice.
func (r *replicaChoice) good(t assignment.Task) bool {
	if t.State == assignment.TaskDraining {
		return false
	}
	if !r.asked {
		r.asked, r.avoid = true, r.c.mayHold() || r.c.throttles.drains.Load() > 0
		r.priority = r.c.Priority(r.c.Labels(context.Background()))
	}
	if !r.avoid {
		return true
	}
	throttle := r.c.Throttle(t.Name)
	return !throttle.Draining() && !throttle.Holds(r.priority, "")
}
