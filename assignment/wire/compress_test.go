package wire_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

// What the balancer makes takes a quarter at most, and comes out as it went in.
func TestCompressed(t *testing.T) {
	for _, n := range []int{100, 2000} {
		a := balanced.New(t, n).Assignment()
		whole, err := wire.WholeFrame(a)
		if err != nil {
			t.Fatal(err)
		}
		packed := whole.Compressed()
		share := float64(len(packed.Data)) / float64(len(whole.Data))
		t.Logf("%v: %d bytes, compressed %d, %.3f", a, len(whole.Data), len(packed.Data), share)
		if share > .25 {
			t.Errorf("%d slices: %.3f of the bytes, want .25 at most", n, share)
		}
		if again := whole.Compressed(); !bytes.Equal(again.Data, packed.Data) || !proto.Equal(again.Trailer, packed.Trailer) {
			t.Errorf("%d slices: other bytes the second time", n)
		}
		var s wire.Assembler
		b, err := send(t, &s, packed, nil)
		if err != nil || b.Checksum() != a.Checksum() || form(a) != form(b) {
			t.Errorf("%d slices: %v, %v", n, b, err)
		}
	}
}

// A frame that would not become smaller stays as it is.
func TestCompressedNoSmaller(t *testing.T) {
	f := &wire.Frame{Data: []byte("x"), Trailer: &slicerv1.Trailer{Size: 1}}
	if got := f.Compressed(); got != f {
		t.Errorf("%v, want the same frame", got)
	}
}

func TestInflateRefuses(t *testing.T) {
	data := []byte(strings.Repeat("slicer ", 1000))
	size := uint64(len(data))
	packed := wire.Deflate(data)
	bomb := wire.Deflate(make([]byte, 4<<20))
	flipped := bytes.Clone(packed)
	flipped[0] = 0x07 // a block of the reserved kind
	for _, c := range []struct {
		name string
		data []byte
		size uint64
		says string
	}{
		{"nothing", nil, 1, "0 bytes are to become 1, 1 to 0 are allowed"},
		{"no size", packed, 0, "are to become 0, 1 to"},
		{"more than DEFLATE can make", packed, 1 << 20, "are to become 1048576, 1 to"},
		{"more than is allowed", bomb[:len(bomb):len(bomb)], wire.MaxEncodedSize + 1, "are to become"},
		{"longer than said", packed, size - 1, "become more than 6999"},
		{"shorter than said", packed, size + 1, "become 7000, not 7001"},
		{"cut off", packed[:len(packed)-1], size, "unexpected EOF"},
		{"cut in the middle", packed[:len(packed)/2], size, "not 7000"},
		{"bytes behind", append(bytes.Clone(packed), 0), size, "1 bytes follow its end"},
		{"not DEFLATE", flipped, size, "corrupt input"},
		{"a bomb", bomb, 1000, "become more than 1000"},
	} {
		out, err := wire.Inflate(c.data, c.size)
		if out != nil || !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %d bytes, %v; want ErrMalformed with %q in one line", c.name, len(out), err, c.says)
		}
	}
}

// The trailer of a delta must not say that it is compressed.
func TestCompressedDelta(t *testing.T) {
	base, next := odd(t, 1, 10), odd(t, 2, 12)
	f, err := wire.DeltaFrame(base, next)
	if err != nil {
		t.Fatal(err)
	}
	lies := proto.CloneOf(f.Trailer)
	lies.WholeSize = 100
	var s wire.Assembler
	if a, err := send(t, &s, &wire.Frame{Data: f.Data, Trailer: lies}, base); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := send(t, &s, f, base); err != nil || a.Checksum() != next.Checksum() {
		t.Errorf("%v, %v: the next one is to come", a, err)
	}
}

func FuzzInflate(f *testing.F) {
	whole, err := wire.EncodeAssignment(odd(f, 1, 10))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Deflate(whole), uint64(len(whole)))
	f.Add(wire.Deflate(make([]byte, 1<<16)), uint64(1<<16))
	f.Add([]byte{1, 0, 0, 255, 255}, uint64(1)) // an empty stored block
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, size uint64) {
		out, err := wire.Inflate(data, size)
		if err != nil {
			if out != nil || !errors.Is(err, wire.ErrMalformed) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
			return
		}
		if uint64(len(out)) != size {
			t.Fatalf("%d bytes, want %d", len(out), size)
		}
		// The standard library says the same without a bound.
		var b bytes.Buffer
		if _, err := b.ReadFrom(flate.NewReader(bytes.NewReader(data))); err != nil || !bytes.Equal(b.Bytes(), out) {
			t.Fatalf("%d bytes, %v; want %d", b.Len(), err, len(out))
		}
		if again, err := wire.Inflate(wire.Deflate(out), size); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%v", err)
		}
	})
}
