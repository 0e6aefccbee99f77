package wire_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func newTasks(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprintf("cache-%d", i), Incarnation: uint64(i+1) * 0x9e3779b97f4a7c15, Address: fmt.Sprintf("10.0.%d.%d:8080", i>>8, i&255),
			Zone: "zone-a", Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return tasks
}

func header(g assignment.Generation) assignment.Header {
	return assignment.Header{Job: "cache", StoreID: 0xfeed, Generation: g, Previous: g - 7000}
}

// big is an assignment of n single-replica slices with random starts and 127
// different since generations: the hardest to encode shortly.
func big(tb testing.TB, n, tasks int) *assignment.Assignment {
	tb.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	h := header(1_760_000_000_000)
	c := assignment.Columns{Starts: make([]assignment.SliceKey, n), Owners: make([]uint32, n), Since: make([]uint8, n)}
	for g := h.Generation; len(c.SinceTable) < 127; g -= assignment.Generation(rng.Int64N(60_000) + 1) {
		c.SinceTable = append(c.SinceTable, g)
	}
	for i := range n {
		if i > 0 {
			c.Starts[i] = assignment.SliceKey(rng.Uint64() >> 1)
		}
		c.Owners[i] = uint32(rng.IntN(tasks))
		c.Since[i] = uint8(1 + rng.IntN(127))
	}
	slices.Sort(c.Starts)
	a, err := assignment.New(h, newTasks(tasks), c)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// changed is a's successor, in which every one-in-share slice has another owner.
func changed(tb testing.TB, a *assignment.Assignment, share int) *assignment.Assignment {
	tb.Helper()
	rng := rand.New(rand.NewPCG(3, 1))
	c := a.Columns()
	p := assignment.Placement{Starts: slices.Clone(c.Starts), Offsets: slices.Clone(c.Offsets), Owners: slices.Clone(c.Owners)}
	for i := range p.Owners {
		if rng.IntN(share) == 0 {
			p.Owners[i] = (p.Owners[i] + 1) % uint32(a.NumTasks())
		}
	}
	h := a.Header()
	h.Generation += 5000
	var tasks []assignment.Task
	for _, t := range a.Tasks() {
		tasks = append(tasks, t)
	}
	next, err := assignment.Successor(a, h, tasks, p)
	if err != nil {
		tb.Fatal(err)
	}
	return next
}

// odd is a small assignment with replicas, odd tasks and since generations.
func odd(tb testing.TB, seed uint64, generation assignment.Generation) *assignment.Assignment {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	tasks := newTasks(2 + rng.IntN(5))
	for i := range tasks {
		tasks[i].Index = uint32(i * (1 + rng.IntN(2)))
		tasks[i].Zone = []string{"", "eu"}[rng.IntN(2)]
		tasks[i].Weight = []float64{1, .3, 1e-6, 1e6}[rng.IntN(4)]
		tasks[i].State = assignment.TaskState(rng.IntN(5))
		if i > 0 && tasks[i].Index <= tasks[i-1].Index {
			tasks[i].Index = tasks[i-1].Index + 1
		}
	}
	h := assignment.Header{Job: "cache", StoreID: 0xfeed, Generation: generation, Previous: generation - 1, Horizon: 3}
	c := assignment.Columns{Offsets: []uint32{0}, SinceTable: []assignment.Generation{9, 7, 4}}
	for cell := range 16 {
		if cell > 0 && rng.IntN(2) == 0 {
			continue
		}
		c.Starts = append(c.Starts, assignment.SliceKey(cell)<<59)
		for _, o := range rng.Perm(len(tasks))[:1+rng.IntN(2)] {
			c.Owners = append(c.Owners, uint32(o))
			c.Since = append(c.Since, uint8(rng.IntN(4)))
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Owners)))
	}
	a, err := assignment.New(h, tasks, c)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// form is all that an assignment holds, as text.
func form(a *assignment.Assignment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", a.Header())
	for _, t := range a.Tasks() {
		fmt.Fprintf(&b, "%+v\n", t)
	}
	for i := range a.NumSlices() {
		fmt.Fprint(&b, a.Slice(i))
		r := a.Replicas(i)
		for j := range r.Len() {
			fmt.Fprintf(&b, " %s@%d", r.At(j).Name, r.Since(j))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
