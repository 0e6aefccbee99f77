package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
)

func TestMemo(t *testing.T) {
	a := big(t, 1000, 10)
	b := changed(t, a, 10)
	m := new(wire.Memo)
	whole, err := m.WholeFrame(a)
	if err != nil {
		t.Fatal(err)
	}
	delta, err := m.DeltaFrame(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := m.DeltaFrame(a, b); again != delta {
		t.Error("a delta was encoded twice")
	}
	s, other, alone := wire.Assembler{Memo: m}, wire.Assembler{Memo: m}, wire.Assembler{}
	take := func(s *wire.Assembler, f *wire.Frame, base *assignment.Assignment) *assignment.Assignment {
		t.Helper()
		got, err := send(t, s, f, base)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := take(&s, whole, nil)
	next := take(&s, delta, first)
	if got := take(&other, whole, b); got != first {
		t.Error("a whole assignment was decoded twice")
	}
	if got := take(&other, delta, first); got != next {
		t.Error("a delta was applied twice")
	}
	// On another object that is the same base the delta is applied anew; what comes
	// of it is shared.
	base := take(&alone, whole, nil)
	if got := take(&other, delta, base); base == first || got != next {
		t.Error("two objects are one generation")
	}
	if got := take(&alone, delta, base); got == next || form(got) != form(next) {
		t.Error("without a memo something is shared, or it is something else")
	}
	// What is not the same to the bit is not taken for it.
	if got, err := send(t, &other, delta, b); got != nil || !errors.Is(err, assignment.ErrBase) {
		t.Errorf("on the wrong base: %v, %v", got, err)
	}
	trailer := proto.CloneOf(delta.Trailer)
	trailer.Checksum++
	if got, err := send(t, &other, &wire.Frame{Data: delta.Data, Trailer: trailer}, first); got != nil || !errors.Is(err, wire.ErrChecksum) {
		t.Errorf("another checksum: %v, %v", got, err)
	}
	for i := range delta.Data {
		data := bytes.Clone(delta.Data)
		data[i] ^= 1
		if got, err := send(t, &other, &wire.Frame{Data: data, Trailer: delta.Trailer}, first); err == nil && form(got) != form(next) {
			t.Fatalf("with byte %d changed it is another assignment", i)
		}
	}
}

// The same load is decoded once, one that is malformed never.
func TestMemoOfLoads(t *testing.T) {
	m := new(wire.Memo)
	p := wire.LoadToProto(&assignment.Load{Ranges: []assignment.Slice{{Start: 1, End: 9}}, Rate: []float64{3}, Parts: 1, Total: 3})
	for _, memo := range []*wire.Memo{m, nil} {
		a, err := memo.Load(p)
		if err != nil || memo.CheckLoad(p) != nil || a.Total != 3 || len(a.Ranges) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		if b, _ := memo.Load(p); (b == a) != (memo != nil) {
			t.Errorf("decoded once: %v", b == a)
		}
		q := proto.CloneOf(p)
		q.Rate = nil
		if _, err := memo.Load(q); err == nil || memo.CheckLoad(q) == nil {
			t.Error("a load without its rate was taken")
		}
		for i := range 3000 { // more than are remembered
			task := wire.TaskToProto(assignment.Task{Name: "t", Incarnation: uint64(i + 1), Address: "t:1", Weight: 1})
			if got, err := memo.Task(task); err != nil || got.Incarnation != uint64(i+1) {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	}
}
