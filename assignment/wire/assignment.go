package wire

import (
	"fmt"
	"math/bits"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// EncodeAssignment returns the bytes of an assignment, which may be a part.
func EncodeAssignment(a *assignment.Assignment) ([]byte, error) {
	h := a.Header()
	m := &slicerv1.Assignment{
		Job: h.Job, StoreId: h.StoreID, Generation: int64(h.Generation),
		Previous: int64(h.Previous), Horizon: int64(h.Horizon),
		Tasks:  make([]*slicerv1.Task, a.NumTasks()),
		Slices: columnsToProto(a.Columns(), h.Generation), Part: h.Part,
	}
	for i, t := range a.Tasks() {
		m.Tasks[i] = TaskToProto(t)
	}
	return deterministic.Marshal(m)
}

// DecodeAssignment reads and validates what EncodeAssignment wrote of a whole assignment.
func DecodeAssignment(data []byte) (*assignment.Assignment, error) {
	a, err := DecodeWholeOrPart(data)
	if err == nil && a.Part() != "" {
		return nil, malformed("assignment", &assignment.FieldError{Field: "part", Value: a.Part(), Allowed: "none: the whole is asked for"})
	}
	return a, err
}

// DecodeWholeOrPart reads and validates what EncodeAssignment wrote.
func DecodeWholeOrPart(data []byte) (*assignment.Assignment, error) {
	var m slicerv1.Assignment
	if err := unmarshal("assignment", data, &m); err != nil {
		return nil, err
	}
	tasks, err := tasksFromProto(m.Tasks)
	if err != nil {
		return nil, malformed("assignment", err)
	}
	h := assignment.Header{
		Job: m.Job, StoreID: m.StoreId, Generation: assignment.Generation(m.Generation),
		Previous: assignment.Generation(m.Previous), Horizon: assignment.Generation(m.Horizon), Part: m.Part,
	}
	c, err := columnsFromProto(m.Slices, h.Generation)
	if err != nil {
		return nil, malformed("assignment", err)
	}
	a, err := assignment.New(h, tasks, c)
	if err != nil {
		return nil, malformed("assignment", err)
	}
	return a, nil
}

// encodeDiff returns the bytes of what turns base into a.
func encodeDiff(base, a *assignment.Assignment) ([]byte, error) {
	d, err := assignment.Diff(base, a)
	if err != nil {
		return nil, err
	}
	return EncodeDelta(d)
}

// EncodeDelta returns the bytes of a delta.
func EncodeDelta(d *assignment.Delta) ([]byte, error) {
	m := &slicerv1.Delta{
		Job: d.H.Job, StoreId: d.H.StoreID, Base: int64(d.Base), Generation: int64(d.H.Generation),
		Previous: int64(d.H.Previous), Horizon: int64(d.H.Horizon),
		PutTasks: make([]*slicerv1.Task, len(d.Put)), DropTasks: d.Drop,
		Slices: columnsToProto(d.Slices, d.H.Generation), Part: d.H.Part,
	}
	for i, t := range d.Put {
		m.PutTasks[i] = TaskToProto(t)
	}
	for _, e := range d.Edits {
		m.Keep, m.Old, m.New = append(m.Keep, e.Keep), append(m.Old, e.Old), append(m.New, e.New)
	}
	return deterministic.Marshal(m)
}

// DecodeDelta reads what EncodeDelta wrote. It bounds the sizes and checks the
// parts; assignment.Apply checks that they make sense together.
func DecodeDelta(data []byte) (*assignment.Delta, error) {
	var m slicerv1.Delta
	if err := unmarshal("delta", data, &m); err != nil {
		return nil, err
	}
	d := &assignment.Delta{
		H: assignment.Header{
			Job: m.Job, StoreID: m.StoreId, Generation: assignment.Generation(m.Generation),
			Previous: assignment.Generation(m.Previous), Horizon: assignment.Generation(m.Horizon), Part: m.Part,
		},
		Base: assignment.Generation(m.Base), Drop: m.DropTasks,
	}
	if len(m.Old) != len(m.Keep) || len(m.New) != len(m.Keep) {
		return nil, malformed("delta", fmt.Errorf("edit columns of different lengths: %d, %d and %d", len(m.Keep), len(m.Old), len(m.New)))
	}
	d.Edits = make([]assignment.Edit, len(m.Keep))
	for i := range d.Edits {
		d.Edits[i] = assignment.Edit{Keep: m.Keep[i], Old: m.Old[i], New: m.New[i]}
	}
	var err error
	if d.Put, err = tasksFromProto(m.PutTasks); err != nil {
		return nil, malformed("delta", err)
	}
	if d.Slices, err = columnsFromProto(m.Slices, d.H.Generation); err != nil {
		return nil, malformed("delta", err)
	}
	return d, nil
}

func columnsToProto(c assignment.Columns, gen assignment.Generation) *slicerv1.SliceColumns {
	m := &slicerv1.SliceColumns{
		StartDelta: make([]uint64, len(c.Starts)),
		Owner:      c.Owners,
	}
	var all assignment.SliceKey
	for _, s := range c.Starts {
		all |= s
	}
	if all != 0 {
		m.Shift = uint32(bits.TrailingZeros64(uint64(all)))
	}
	var last assignment.SliceKey
	for i, s := range c.Starts {
		m.StartDelta[i] = uint64(s-last) >> m.Shift
		last = s
	}
	if c.Offsets != nil {
		m.Replicas = make([]uint32, len(c.Offsets)-1)
		for i := range m.Replicas {
			m.Replicas[i] = c.Offsets[i+1] - c.Offsets[i]
		}
	}
	for _, g := range c.SinceTable {
		m.SinceDelta = append(m.SinceDelta, uint64(gen-g))
		gen = g
	}
	if c.Since != nil {
		m.Since = make([]uint32, len(c.Since))
		for i, s := range c.Since {
			m.Since[i] = uint32(s)
		}
	}
	return m
}

func columnsFromProto(m *slicerv1.SliceColumns, gen assignment.Generation) (c assignment.Columns, err error) {
	// countLists has bounded the columns.
	switch {
	case m == nil:
		return c, nil
	case m.Shift >= assignment.KeyBits:
		return c, fmt.Errorf("shift %d, at most %d is allowed", m.Shift, assignment.KeyBits-1)
	case len(m.Since) != 0 && len(m.Since) != len(m.Owner):
		return c, fmt.Errorf("%d since entries for %d owners", len(m.Since), len(m.Owner))
	}
	c.Owners = m.Owner
	c.Starts = make([]assignment.SliceKey, len(m.StartDelta))
	limit := uint64(assignment.KeyspaceEnd) >> m.Shift
	at := uint64(0)
	for i, d := range m.StartDelta {
		if d >= limit-at {
			return c, fmt.Errorf("slice %d starts past the keyspace", i)
		}
		at += d
		c.Starts[i] = assignment.SliceKey(at << m.Shift)
	}
	if len(m.Replicas) > 0 {
		c.Offsets = make([]uint32, len(m.Replicas)+1)
		sum := uint64(0)
		for i, n := range m.Replicas {
			if sum += uint64(n); sum > uint64(len(m.Owner)) {
				return c, fmt.Errorf("more than %d replicas for %d owners", sum-1, len(m.Owner))
			}
			c.Offsets[i+1] = uint32(sum)
		}
	}
	for i, d := range m.SinceDelta {
		if d > uint64(max(gen, 0)) {
			return c, fmt.Errorf("since generation %d is before 0", i)
		}
		gen -= assignment.Generation(d)
		c.SinceTable = append(c.SinceTable, gen)
	}
	if len(m.Since) > 0 {
		c.Since = make([]uint8, len(m.Since))
		for i, s := range m.Since {
			if s > maxSinceTable {
				return c, fmt.Errorf("since entry %d is %d, at most %d is allowed", i, s, maxSinceTable)
			}
			c.Since[i] = uint8(s)
		}
	}
	return c, nil
}
