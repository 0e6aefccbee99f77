package slicertest

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/slicer-project/slicer/assignment"
)

// Place says which tasks own some keys. All other keys stay where they are.
type Place struct {
	slice assignment.Slice
	// spread: the slice is cut into equal parts, one for each task.
	spread bool
	tasks  []string
}

// Key places one key at a task, or at several, which are its replicas then.
func Key(key string, tasks ...string) Place {
	k := assignment.KeyOf(key)
	return Place{slice: assignment.Slice{Start: k, End: k + 1}, tasks: tasks}
}

// Slice places a range of slice keys at a task, or at several, which are its replicas then.
func Slice(s assignment.Slice, tasks ...string) Place { return Place{slice: s, tasks: tasks} }

// Spread places all keys: it cuts the keyspace into equal parts, one for each task, in the order
// given.
func Spread(tasks ...string) Place {
	return Place{slice: assignment.Keyspace, spread: true, tasks: tasks}
}

// Address is that of a task to which no slicelet has given another: where Env.Listen listens.
func Address(task string) string { return task + ".test:80" }

// Assignment makes an assignment of generation 1 for clerk.Config.Static and
// slicelet.Config.Static. The places are taken in order, and have to place all keys. Tasks are
// running, at the Address of their name, with indexes in the order in which they are named. What is
// not allowed panics.
func Assignment(job string, places ...Place) *assignment.Assignment {
	var p placement
	var tasks []assignment.Task
	for _, pl := range places {
		for _, name := range pl.tasks {
			if !slices.ContainsFunc(tasks, func(t assignment.Task) bool { return t.Name == name }) {
				tasks = append(tasks, newTask(name, uint32(len(tasks))))
			}
		}
	}
	p, err := p.with(places)
	if err != nil {
		panic(fmt.Sprintf("slicertest: %v", err))
	}
	a, err := p.successor(nil, assignment.Header{Job: job, StoreID: 1, Generation: 1}, tasks)
	if err != nil {
		panic(fmt.Sprintf("slicertest: %v", err))
	}
	return a
}

func newTask(name string, index uint32) assignment.Task {
	return assignment.Task{Name: name, Incarnation: 1, Address: Address(name), Index: index, Weight: 1, State: assignment.TaskRunning}
}

// placement is which tasks, by name, own which keys: cells in key order that cover all keys, or
// none. It is not changed once it is made.
type placement []cell

type cell struct {
	start assignment.SliceKey
	tasks []string
}

// with returns the placement after places have been taken, in order.
func (p placement) with(places []Place) (placement, error) {
	for _, pl := range places {
		if len(pl.tasks) == 0 {
			return nil, &assignment.FieldError{Field: "tasks of a place", Value: 0, Allowed: "at least one"}
		}
		if err := pl.slice.Valid(); err != nil {
			return nil, err
		}
		switch {
		case pl.spread:
			p = spread(pl.tasks)
		case len(p) == 0 && pl.slice != assignment.Keyspace:
			return nil, &assignment.FieldError{Field: "first place", Value: pl.slice, Allowed: "all keys, as of Spread: none has an owner yet"}
		default:
			p = p.set(pl.slice, slices.Clone(pl.tasks))
		}
	}
	if len(p) == 0 {
		return nil, &assignment.FieldError{Field: "places", Value: 0, Allowed: "at least one, of all keys"}
	}
	return p, nil
}

func spread(tasks []string) placement {
	p := make(placement, len(tasks))
	for i, start := range assignment.Equal(len(tasks)) {
		p[i] = cell{start, tasks[i : i+1]}
	}
	return p
}

// set gives a slice to tasks.
func (p placement) set(s assignment.Slice, tasks []string) placement {
	// The cell that holds the slice's end goes on behind it.
	last := sort.Search(len(p), func(i int) bool { return p[i].start >= s.End }) - 1
	first := sort.Search(len(p), func(i int) bool { return p[i].start >= s.Start })
	out := append(slices.Clone(p[:first]), cell{s.Start, tasks})
	if s.End < assignment.KeyspaceEnd && last >= 0 {
		out = append(out, cell{s.End, p[last].tasks})
		if last+1 < len(p) && p[last+1].start == s.End {
			out = out[:len(out)-1]
		}
	}
	return append(out, p[last+1:]...).joined()
}

// joined makes one cell of neighbours that have the same tasks.
func (p placement) joined() placement {
	return slices.CompactFunc(p, func(a, b cell) bool { return slices.Equal(a.tasks, b.tasks) })
}

// without takes everything from a task: what has no other owner goes to the others in turns. If
// there are none, it stays.
func (p placement) without(task string, others []string) placement {
	out, turn := make(placement, len(p)), 0
	for i, c := range p {
		out[i] = c
		if !slices.Contains(c.tasks, task) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(c.tasks), func(t string) bool { return t == task })
		if len(left) == 0 && len(others) > 0 {
			left = []string{others[turn%len(others)]}
			turn++
		}
		if len(left) > 0 {
			out[i].tasks = left
		}
	}
	return out.joined()
}

// names are the tasks that own something, in order of name.
func (p placement) names() []string {
	seen := make(map[string]bool)
	for _, c := range p {
		for _, t := range c.tasks {
			seen[t] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// successor is the placement as the assignment that follows prev. Tasks are in order of index.
func (p placement) successor(prev *assignment.Assignment, h assignment.Header, tasks []assignment.Task) (*assignment.Assignment, error) {
	position := make(map[string]uint32, len(tasks))
	for i, t := range tasks {
		position[t.Name] = uint32(i)
	}
	var out assignment.Placement
	for _, c := range p {
		owners := make([]uint32, len(c.tasks))
		for i, t := range c.tasks {
			owners[i] = position[t]
		}
		out.Add(c.start, owners...)
	}
	return assignment.Successor(prev, h, slices.Clone(tasks), out)
}
