package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The seeds of these targets are in testdata/fuzz: encoded assignments, deltas
// and load reports, sound ones and damaged ones.

func FuzzDecodeAssignment(f *testing.F) {
	data, err := wire.EncodeAssignment(odd(f, 9, 10))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := wire.DecodeAssignment(data)
		if err != nil {
			return
		}
		again, err := wire.EncodeAssignment(a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := wire.DecodeAssignment(again)
		if err != nil || b.Checksum() != a.Checksum() || form(a) != form(b) {
			t.Fatalf("%v\n%s", err, form(a))
		}
	})
}

// fuzzBase is what the seeds of FuzzDecodeDelta are deltas on.
func fuzzBase(tb testing.TB) *assignment.Assignment { return odd(tb, 1, 10) }

func FuzzDecodeDelta(f *testing.F) {
	base := fuzzBase(f)
	before := form(base)
	frame, err := wire.DeltaFrame(base, odd(f, 9, 12))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := wire.DecodeDelta(data)
		if err != nil {
			return
		}
		a, err := assignment.Apply(base, d)
		if form(base) != before {
			t.Fatal("the base was changed")
		}
		if err != nil {
			return
		}
		// It is valid: it can be built again, and it diffs and applies in turn.
		var tasks []assignment.Task
		for _, t := range a.Tasks() {
			tasks = append(tasks, t)
		}
		if b, err := assignment.New(a.Header(), tasks, a.Columns()); err != nil || b.Checksum() != a.Checksum() {
			t.Fatalf("%v\n%s", err, form(a))
		}
		frame, err := wire.DeltaFrame(base, a)
		if err != nil {
			t.Fatal(err)
		}
		var s wire.Assembler
		if b, err := send(t, &s, frame, base); err != nil || form(a) != form(b) {
			t.Fatalf("%v\n%s", err, form(a))
		}
	})
}

func FuzzLoadFromProto(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		var m slicerv1.LoadReport
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		l, err := wire.LoadFromProto(&m)
		if err != nil {
			return
		}
		var end assignment.SliceKey
		for i, r := range l.Ranges {
			if r.Valid() != nil || r.Start < end {
				t.Fatalf("range %d is %s after %s", i, r, end)
			}
			end = r.End
		}
		if len(l.Rate) != len(l.Ranges) || l.Parts > 1 && len(l.PartRate) != l.Parts*len(l.Ranges) || l.Parts < 1 || l.Window < 0 {
			t.Fatalf("%+v", l)
		}
		again, err := wire.LoadFromProto(wire.LoadToProto(l))
		if err != nil || !proto.Equal(wire.LoadToProto(l), wire.LoadToProto(again)) {
			t.Fatalf("%v: %+v, then %+v", err, l, again)
		}
	})
}

// FuzzAssembler takes its input as a stream: of each piece the first byte says
// what it is and the second how long.
func FuzzAssembler(f *testing.F) {
	base := fuzzBase(f)
	whole, err := wire.WholeFrame(base)
	if err != nil {
		f.Fatal(err)
	}
	delta, err := wire.DeltaFrame(base, odd(f, 2, 12))
	if err != nil {
		f.Fatal(err)
	}
	packed := whole.Compressed()
	f.Add([]byte{5, 255, 6, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		var s wire.Assembler
		held := base
		for len(stream) >= 2 {
			kind, n := stream[0], int(stream[1])
			stream = stream[2:]
			piece := stream[:min(n, len(stream))]
			var trailer *slicerv1.Trailer
			switch kind % 7 {
			case 0:
				stream = stream[len(piece):]
				if err := s.Add(&slicerv1.Chunk{Data: piece}); err != nil {
					t.Fatal(err)
				}
				continue
			case 1: // some of a real one
				if err := s.Add(&slicerv1.Chunk{Data: whole.Data[:min(n*8, len(whole.Data))]}); err != nil {
					t.Fatal(err)
				}
				continue
			case 2:
				if err := s.Add(&slicerv1.Chunk{Data: delta.Data[:min(n*8, len(delta.Data))]}); err != nil {
					t.Fatal(err)
				}
				continue
			case 5:
				if err := s.Add(&slicerv1.Chunk{Data: packed.Data[:min(n*8, len(packed.Data))]}); err != nil {
					t.Fatal(err)
				}
				continue
			case 6:
				trailer = packed.Trailer
			case 3:
				trailer = []*slicerv1.Trailer{whole.Trailer, delta.Trailer}[n%2]
			case 4:
				stream = stream[len(piece):]
				trailer = new(slicerv1.Trailer)
				if proto.Unmarshal(piece, trailer) != nil {
					trailer = nil
				}
			}
			a, err := s.Finish(trailer, held)
			if err != nil {
				continue
			}
			if a.Checksum() != trailer.GetChecksum() || a.Generation() != assignment.Generation(trailer.GetGeneration()) {
				t.Fatalf("%v is not what the trailer promises, %v", a, trailer)
			}
			held = a
		}
		// Whatever came, an end and then a frame bring the assignment.
		_, _ = s.Finish(nil, nil)
		if a, err := send(t, &s, whole, nil); err != nil || a.Checksum() != base.Checksum() {
			t.Fatalf("%v, %v", a, err)
		}
	})
}
