package wire

import (
	"bytes"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Memo remembers what a few frames, loads and tasks came to, for a process in which
// many take the same ones, as a simulated cluster does: the result is worked out
// once and shared. It changes no outcome: a frame is the same only if all its bytes,
// its trailer and its base are, a load or a task only if it is the very same message,
// which nobody may change. The zero value is ready, a nil one remembers nothing. It
// is not safe for concurrent use.
type Memo struct {
	loads   map[*slicerv1.LoadReport]*assignment.Load
	tasks   map[*slicerv1.Task]assignment.Task
	decoded [16]decoded
	encoded [16]encoded
	last    struct{ decoded, encoded int }
}

type decoded struct {
	data            []byte
	generation, on  int64
	sum             uint64
	base, assembled *assignment.Assignment
}

type encoded struct {
	base, a *assignment.Assignment
	frame   *Frame
}

// WholeFrame is WholeFrame.
func (m *Memo) WholeFrame(a *assignment.Assignment) (*Frame, error) {
	return m.frame(nil, a, func() (*Frame, error) { return WholeFrame(a) })
}

// DeltaFrame is DeltaFrame.
func (m *Memo) DeltaFrame(base, a *assignment.Assignment) (*Frame, error) {
	return m.frame(base, a, func() (*Frame, error) { return DeltaFrame(base, a) })
}

func (m *Memo) frame(base, a *assignment.Assignment, encode func() (*Frame, error)) (*Frame, error) {
	if m == nil {
		return encode()
	}
	for i := range m.encoded {
		if e := &m.encoded[i]; same(e.a, a) && same(e.base, base) {
			return e.frame, nil
		}
	}
	f, err := encode()
	if err == nil {
		m.last.encoded++
		m.encoded[m.last.encoded%len(m.encoded)] = encoded{base, a, f}
	}
	return f, err
}

// maxMessages is how many loads, and tasks, are remembered.
const maxMessages = 1024

// Load is LoadFromProto. What it returns is not to be changed.
func (m *Memo) Load(p *slicerv1.LoadReport) (*assignment.Load, error) {
	if m == nil {
		return LoadFromProto(p)
	}
	return recall(&m.loads, p, LoadFromProto)
}

// Task is TaskFromProto.
func (m *Memo) Task(p *slicerv1.Task) (assignment.Task, error) {
	if m == nil {
		return TaskFromProto(p)
	}
	return recall(&m.tasks, p, TaskFromProto)
}

// CheckLoad is CheckLoad.
func (m *Memo) CheckLoad(p *slicerv1.LoadReport) error {
	if m == nil {
		return CheckLoad(p)
	}
	_, err := m.Load(p)
	return err
}

func recall[P comparable, T any](known *map[P]T, p P, decode func(P) (T, error)) (T, error) {
	if t, ok := (*known)[p]; ok {
		return t, nil
	}
	t, err := decode(p)
	if err != nil {
		return t, err
	}
	if *known == nil || len(*known) >= maxMessages {
		*known = make(map[P]T)
	}
	(*known)[p] = t
	return t, nil
}

// same says whether two assignments are one and the same, however they came here.
func same(a, b *assignment.Assignment) bool {
	return a == b || a != nil && b != nil && a.Generation() == b.Generation() && a.StoreID() == b.StoreID() && a.Job() == b.Job() && a.Checksum() == b.Checksum()
}

// find is what the frame came to before, nil if it is not remembered.
func (m *Memo) find(t *slicerv1.Trailer, data []byte, base *assignment.Assignment) *assignment.Assignment {
	if m == nil {
		return nil
	}
	if t.GetBase() == 0 {
		base = nil // a whole assignment stands on nothing
	}
	for i := range m.decoded {
		d := &m.decoded[i]
		if d.assembled != nil && d.generation == t.GetGeneration() && d.sum == t.GetChecksum() && d.on == t.GetBase() &&
			d.base == base && bytes.Equal(d.data, data) {
			return d.assembled
		}
	}
	return nil
}

// keep remembers what the frame came to, and returns it: the one that is shared
// by all who hold this generation, however they came by it.
func (m *Memo) keep(t *slicerv1.Trailer, data []byte, base, a *assignment.Assignment) *assignment.Assignment {
	if m == nil {
		return a
	}
	if t.GetBase() == 0 {
		base = nil
	}
	for i := range m.decoded {
		if d := m.decoded[i].assembled; d != nil && d.Generation() == a.Generation() && d.StoreID() == a.StoreID() && d.Checksum() == a.Checksum() {
			a = d
			break
		}
	}
	m.last.decoded++
	m.decoded[m.last.decoded%len(m.decoded)] = decoded{bytes.Clone(data), t.GetGeneration(), t.GetBase(), t.GetChecksum(), base, a}
	return a
}
