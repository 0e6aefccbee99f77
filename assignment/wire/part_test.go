package wire_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// parts are those for one task of an assignment and of one that follows on it, the second with
// its moves.
func parts(tb testing.TB) (base, next *assignment.Assignment) {
	a := big(tb, 400, 10)
	b := changed(tb, a, 5)
	next, base = assignment.NewCut(b).Since(assignment.NewCut(a), a.Task(3).Name)
	return base, next
}

func receive(f *wire.Frame, base *assignment.Assignment) (*assignment.Assignment, error) {
	s := wire.Assembler{Parts: true}
	for m := range f.Responses() {
		if a, err := s.Take(m, base); a != nil || err != nil {
			return a, err
		}
	}
	return nil, errors.New("nothing came")
}

func TestPartsOnTheWire(t *testing.T) {
	base, next := parts(t)
	for _, on := range []*assignment.Assignment{nil, base} {
		f, err := wire.PartFrame(on, next)
		if err != nil {
			t.Fatal(err)
		}
		got, err := receive(f, on)
		if err != nil {
			t.Fatal(err)
		}
		m, want := got.Moves(), next.Moves()
		if form(got) != form(next) || got.Part() != next.Part() || form(m.From) != form(want.From) || form(m.To) != form(want.To) {
			t.Errorf("got\n%s\nwant\n%s", form(got), form(next))
		}
		if want.From.NumOwners() == 0 || want.To.NumOwners() == 0 {
			t.Fatal("nothing has come, or nothing has gone: the test tests nothing")
		}
		var whole wire.Assembler
		if _, err := send(t, &whole, f, on); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("a part, where the whole is asked for: %v", err)
		}
	}
	data, err := wire.EncodeAssignment(next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodeAssignment(data); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a part decoded as a whole: %v", err)
	}
}

func TestMalformedParts(t *testing.T) {
	base, next := parts(t)
	whole := big(t, 50, 10)
	encoded := func(a *assignment.Assignment) []byte {
		data, err := wire.EncodeAssignment(a)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	other := assignment.NewCut(whole).Part("another")
	for name, c := range map[string]struct {
		m     *slicerv1.Part
		twist func(*slicerv1.Trailer)
	}{
		"nothing":              {m: &slicerv1.Part{}},
		"a whole":              {m: &slicerv1.Part{Assignment: encoded(whole)}},
		"no assignment":        {m: &slicerv1.Part{Assignment: []byte{1, 2, 3}}},
		"from is whole":        {m: &slicerv1.Part{Assignment: encoded(next), From: encoded(whole)}},
		"to is another's":      {m: &slicerv1.Part{Assignment: encoded(next), To: encoded(other)}},
		"from is not earlier":  {m: &slicerv1.Part{Assignment: encoded(next), From: encoded(next)}},
		"to is of another":     {m: &slicerv1.Part{Assignment: encoded(next), To: encoded(base)}},
		"compressed":           {m: &slicerv1.Part{Assignment: encoded(next)}, twist: func(t *slicerv1.Trailer) { t.WholeSize = 5 }},
		"a delta without base": {m: &slicerv1.Part{Assignment: encoded(next)}, twist: func(t *slicerv1.Trailer) { t.Base = 1 }},
		"another checksum":     {m: &slicerv1.Part{Assignment: encoded(next)}, twist: func(t *slicerv1.Trailer) { t.Checksum++ }},
	} {
		data, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		tr := &slicerv1.Trailer{Generation: int64(next.Generation()), Checksum: next.Checksum(), Size: uint64(len(data)), Part: true}
		if c.twist != nil {
			c.twist(tr)
		}
		if a, err := receive(&wire.Frame{Data: data, Trailer: tr}, nil); err == nil {
			t.Errorf("%s: %v was taken", name, a)
		}
	}
}

func FuzzDecodePart(f *testing.F) {
	base, next := parts(f)
	for _, on := range []*assignment.Assignment{nil, base} {
		frame, err := wire.PartFrame(on, next)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame.Data, frame.Trailer.GetBase())
	}
	before := form(base)
	f.Fuzz(func(t *testing.T, data []byte, on int64) {
		tr := &slicerv1.Trailer{Generation: int64(next.Generation()), Checksum: next.Checksum(), Base: on, Size: uint64(len(data)), Part: true}
		a, err := receive(&wire.Frame{Data: data, Trailer: tr}, base)
		if form(base) != before {
			t.Fatal("the base was changed")
		}
		if err != nil {
			return
		}
		if form(a) != form(next) || a.Part() != next.Part() {
			t.Fatal("what has the checksum is another")
		}
		again, err := wire.PartFrame(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := receive(again, nil); err != nil || form(a) != form(b) {
			t.Fatalf("%v\n%s", err, form(a))
		}
	})
}
