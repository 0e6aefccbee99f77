package assignment_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// structure is all that an assignment says, in plain values: an oracle for
// equality that shares nothing with Checksum.
type structure struct {
	Header assignment.Header
	Tasks  []assignment.Task
	Slices []sliceStructure
}

type sliceStructure struct {
	Slice  assignment.Slice
	Owners []ownerStructure
}

type ownerStructure struct {
	Task  string
	Since assignment.Generation
}

func structureOf(a *assignment.Assignment) structure {
	s := structure{Header: a.Header()}
	for _, t := range a.Tasks() {
		s.Tasks = append(s.Tasks, t)
	}
	for i := range a.NumSlices() {
		r := a.Replicas(i)
		ss := sliceStructure{Slice: a.Slice(i)}
		for j := range r.Len() {
			ss.Owners = append(ss.Owners, ownerStructure{r.At(j).Name, r.Since(j)})
		}
		s.Slices = append(s.Slices, ss)
	}
	return s
}

// newTasks makes n tasks of consecutive indexes.
func newTasks(n int) []assignment.Task {
	tasks := make([]assignment.Task, n)
	for i := range tasks {
		tasks[i] = assignment.Task{
			Name: fmt.Sprintf("cache-%d", i), Incarnation: uint64(i) + 1, Address: fmt.Sprintf("10.0.%d.%d:8080", i>>8, i&255),
			Zone: "zone-a", Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return tasks
}

// random makes an assignment with everything that one can have: holes in the
// indexes, odd names, replicas, since generations.
func random(tb testing.TB, rng *rand.Rand, slicesN, tasksN int) *assignment.Assignment {
	tb.Helper()
	tasks := newTasks(tasksN)
	index := uint32(0)
	for i := range tasks {
		t := &tasks[i]
		index += uint32(1 + rng.IntN(3))
		t.Index, t.Incarnation = index, rng.Uint64()|1
		t.Name += []string{"", `"`, `\`, "@7", "=", "#", "<&>"}[rng.IntN(7)]
		t.Zone = []string{"", "eu-1", `"`, "#"}[rng.IntN(4)]
		t.Weight = []float64{1, .1, 1e-6, 1e6, rng.Float64() + .5}[rng.IntN(5)]
		t.State = assignment.TaskState(rng.IntN(5))
	}
	h := assignment.Header{Job: "job-1", StoreID: rng.Uint64(), Generation: 1_760_000_000_000 + assignment.Generation(rng.Int64N(1e9))}
	h.Previous = h.Generation - assignment.Generation(rng.Int64N(1e6)+1)
	h.Horizon = h.Generation - assignment.Generation(rng.Int64N(1e6)+200)
	var c assignment.Columns
	for g := h.Generation; len(c.SinceTable) < 127 && g > h.Horizon; g -= assignment.Generation(1 + rng.Int64N(2)) {
		c.SinceTable = append(c.SinceTable, g)
	}
	keys := map[assignment.SliceKey]bool{0: true}
	for len(keys) < slicesN {
		keys[assignment.SliceKey(rng.Uint64()>>1)] = true
	}
	for k := range keys {
		c.Starts = append(c.Starts, k)
	}
	slices.Sort(c.Starts)
	c.Offsets = []uint32{0}
	replicas := 1 + rng.IntN(min(3, tasksN))
	for range c.Starts {
		for _, o := range rng.Perm(tasksN)[:1+rng.IntN(replicas)] {
			c.Owners = append(c.Owners, uint32(o))
			c.Since = append(c.Since, uint8(rng.IntN(len(c.SinceTable)+1)))
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Owners)))
	}
	a, err := assignment.New(h, tasks, c)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func checkFieldError(t *testing.T, name string, err error, want string) {
	t.Helper()
	var field *assignment.FieldError
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %s", name, err, want)
	} else if !errors.As(err, &field) {
		t.Errorf("%s: %v holds no FieldError", name, err)
	}
}
