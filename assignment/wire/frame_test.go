package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// send passes a frame's chunks through an assembler.
func send(tb testing.TB, s *wire.Assembler, f *wire.Frame, base *assignment.Assignment) (*assignment.Assignment, error) {
	tb.Helper()
	for chunk := range wire.Chunks(f.Data) {
		if err := s.Add(&slicerv1.Chunk{Data: chunk}); err != nil {
			return nil, err
		}
	}
	return s.Finish(f.Trailer, base)
}

func TestFrames(t *testing.T) {
	a := big(t, 100_000, 100)
	b := changed(t, a, 100)
	whole, err := wire.WholeFrame(a)
	if err != nil {
		t.Fatal(err)
	}
	delta, err := wire.DeltaFrame(a, b)
	if err != nil {
		t.Fatal(err)
	}
	var s wire.Assembler
	got, err := send(t, &s, whole, nil)
	if err != nil || got.Checksum() != a.Checksum() {
		t.Fatalf("whole: %v, %v", got, err)
	}
	next, err := send(t, &s, delta, got)
	if err != nil || next.Checksum() != b.Checksum() || form(next) != form(b) {
		t.Fatalf("delta: %v, %v", next, err)
	}
	// Whatever has gone wrong, the next frame is whole again.
	for _, tc := range []struct {
		name    string
		frame   *wire.Frame
		trailer func(t *slicerv1.Trailer)
		base    *assignment.Assignment
		want    error
	}{
		{"checksum", whole, func(t *slicerv1.Trailer) { t.Checksum++ }, nil, wire.ErrChecksum},
		{"generation", whole, func(t *slicerv1.Trailer) { t.Generation++ }, nil, wire.ErrChecksum},
		{"size", whole, func(t *slicerv1.Trailer) { t.Size++ }, nil, wire.ErrMalformed},
		{"delta as whole", delta, func(t *slicerv1.Trailer) { t.Base = 0 }, nil, wire.ErrMalformed},
		{"whole as delta", whole, func(t *slicerv1.Trailer) { t.Base = 5 }, a, nil},
		{"no base", delta, func(t *slicerv1.Trailer) {}, nil, assignment.ErrBase},
		{"other base", delta, func(t *slicerv1.Trailer) {}, b, assignment.ErrBase},
		{"other base claimed", delta, func(t *slicerv1.Trailer) { t.Base++ }, a, assignment.ErrBase},
	} {
		trailer := proto.CloneOf(tc.frame.Trailer)
		tc.trailer(trailer)
		if got, err := send(t, &s, &wire.Frame{Data: tc.frame.Data, Trailer: trailer}, tc.base); got != nil || err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v, want %v", tc.name, got, err, tc.want)
		}
		if got, err := send(t, &s, whole, nil); err != nil || got.Checksum() != a.Checksum() {
			t.Errorf("after %s: %v, %v", tc.name, got, err)
		}
	}
	if got, err := s.Finish(nil, nil); got != nil || !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("nothing at all: %v, %v", got, err)
	}
	if _, err := wire.DeltaFrame(a, odd(t, 1, 10)); err != nil {
		t.Errorf("an unrelated assignment of the job: %v", err)
	}
}

// A delta that lost a bit applies, but not to the assignment that was promised.
func TestDamagedDelta(t *testing.T) {
	for _, n := range []int{1000, assignment.PartFrom} {
		a := big(t, n, 10)
		b := changed(t, a, n/100)
		f, err := wire.DeltaFrame(a, b)
		if err != nil {
			t.Fatal(err)
		}
		var s wire.Assembler
		for i := 0; i < len(f.Data); i += 1 + n/assignment.PartFrom { // of many slices every other byte
			for bit := range 8 {
				bad := bytes.Clone(f.Data)
				bad[i] ^= 1 << bit
				got, err := send(t, &s, &wire.Frame{Data: bad, Trailer: f.Trailer}, a)
				if err == nil && checksumAnew(t, got) != b.Checksum() {
					t.Fatalf("%d slices, byte %d, bit %d: taken for the real one", n, i, bit)
				}
			}
		}
	}
}

// checksumAnew is computed, where a may have been told its own.
func checksumAnew(tb testing.TB, a *assignment.Assignment) uint64 {
	tb.Helper()
	var tasks []assignment.Task
	for _, t := range a.Tasks() {
		tasks = append(tasks, t)
	}
	b, err := assignment.New(a.Header(), tasks, a.Columns())
	if err != nil {
		tb.Fatal(err)
	}
	return b.Checksum()
}

// Of many slices a delta's sum is compared in place of the checksum, if there is one.
func TestDeltaSum(t *testing.T) {
	a := big(t, assignment.PartFrom, 100)
	b := changed(t, a, 1000)
	f, err := wire.DeltaFrame(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if small, err := wire.DeltaFrame(big(t, 100, 10), changed(t, big(t, 100, 10), 3)); err != nil || small.Trailer.DeltaSum != nil {
		t.Errorf("of few slices: %v, %v", small.Trailer, err)
	}
	var s wire.Assembler
	for _, tc := range []struct {
		name    string
		trailer func(t *slicerv1.Trailer)
		want    error
	}{
		{"as it is", func(t *slicerv1.Trailer) {}, nil},
		{"from a server that knows none", func(t *slicerv1.Trailer) { t.DeltaSum = nil }, nil},
		{"from one that knows none, damaged", func(t *slicerv1.Trailer) { t.DeltaSum, t.Checksum = nil, t.Checksum+1 }, wire.ErrChecksum},
		{"another sum", func(t *slicerv1.Trailer) { *t.DeltaSum++ }, wire.ErrChecksum},
		{"no sum but 0", func(t *slicerv1.Trailer) { *t.DeltaSum = 0 }, wire.ErrChecksum},
		{"another generation", func(t *slicerv1.Trailer) { t.Generation++ }, wire.ErrChecksum},
	} {
		trailer := proto.CloneOf(f.Trailer)
		tc.trailer(trailer)
		got, err := send(t, &s, &wire.Frame{Data: f.Data, Trailer: trailer}, a)
		if !errors.Is(err, tc.want) || err == nil && (got.Checksum() != b.Checksum() || checksumAnew(t, got) != b.Checksum()) {
			t.Errorf("%s: %v, %v, want %v", tc.name, got, err, tc.want)
		}
	}
}

func TestChunks(t *testing.T) {
	for _, n := range []int{0, 1, wire.MaxChunk, wire.MaxChunk + 1, 3*wire.MaxChunk - 1} {
		data := bytes.Repeat([]byte{1, 2, 3, 4, 5}, n/5+1)[:n]
		var all []byte
		for c := range wire.Chunks(data) {
			if len(c) == 0 || len(c) > wire.MaxChunk || cap(c) != len(c) {
				t.Errorf("%d bytes: a chunk of %d, capacity %d", n, len(c), cap(c))
			}
			all = append(all, c...)
		}
		if !bytes.Equal(all, data) {
			t.Errorf("%d bytes: %d in chunks", n, len(all))
		}
	}
	for range wire.Chunks(make([]byte, 2*wire.MaxChunk)) {
		break
	}
}

func TestAssemblerIsBounded(t *testing.T) {
	var s wire.Assembler
	if err := s.Add(&slicerv1.Chunk{Data: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(&slicerv1.Chunk{Data: make([]byte, wire.MaxEncodedSize)}); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("one byte too many: %v", err)
	}
	a := odd(t, 1, 10)
	f, err := wire.WholeFrame(a)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := send(t, &s, f, nil); err != nil || got.Checksum() != a.Checksum() {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestFramesAreTheSameForAll(t *testing.T) {
	f := &wire.Frame{Data: bytes.Repeat([]byte("0123456789"), wire.MaxChunk/8), Trailer: &slicerv1.Trailer{Generation: 7, Size: 1}}
	var chunks []byte
	var last *slicerv1.WatchResponse
	for m := range f.Responses() {
		chunks, last = append(chunks, m.GetChunk().GetData()...), m
	}
	if !bytes.Equal(chunks, f.Data) || last.GetTrailer() != f.Trailer {
		t.Errorf("%d bytes of %d, then %v", len(chunks), len(f.Data), last.GetTrailer())
	}
	chunks = nil
	var piece *slicerv1.JobAssignment
	for m := range f.Pieces("web") {
		if m.Job != "web" {
			t.Errorf("a piece of job %q", m.Job)
		}
		chunks, piece = append(chunks, m.GetChunk().GetData()...), m
	}
	if !bytes.Equal(chunks, f.Data) || piece.GetTrailer() != f.Trailer {
		t.Errorf("%d bytes of %d, then %v", len(chunks), len(f.Data), piece.GetTrailer())
	}
	for range f.Responses() {
		break
	}
}
