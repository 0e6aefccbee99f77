package wire_test

import (
	"fmt"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/test/kit/balanced"
)

// At 10^5 slices and 1000 tasks; the delta changes one percent.
func benchData(b *testing.B) (base, next *assignment.Assignment, whole []byte, delta *assignment.Delta, encoded []byte) {
	b.Helper()
	base = big(b, 100_000, 1000)
	next = changed(b, base, 100)
	var err error
	if whole, err = wire.EncodeAssignment(base); err != nil {
		b.Fatal(err)
	}
	if delta, err = assignment.Diff(base, next); err != nil {
		b.Fatal(err)
	}
	if encoded, err = wire.EncodeDelta(delta); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return base, next, whole, delta, encoded
}

func BenchmarkEncode(b *testing.B) {
	base, _, whole, _, _ := benchData(b)
	b.SetBytes(int64(len(whole)))
	for b.Loop() {
		if _, err := wire.EncodeAssignment(base); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	_, _, whole, _, _ := benchData(b)
	b.SetBytes(int64(len(whole)))
	for b.Loop() {
		if _, err := wire.DecodeAssignment(whole); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeDelta(b *testing.B) {
	_, _, _, delta, _ := benchData(b)
	for b.Loop() {
		if _, err := wire.EncodeDelta(delta); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeDelta(b *testing.B) {
	_, _, _, _, encoded := benchData(b)
	for b.Loop() {
		if _, err := wire.DecodeDelta(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

// What a subscriber does with a delta: chunks, decode, apply, checksum.
func BenchmarkReceiveDelta(b *testing.B) {
	base, next, _, _, _ := benchData(b)
	frame, err := wire.DeltaFrame(base, next)
	if err != nil {
		b.Fatal(err)
	}
	var s wire.Assembler
	for b.Loop() {
		if _, err := send(b, &s, frame, base); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWhole is what compression costs and brings: encoding, then making the frame smaller,
// once a generation, and what a subscriber does with either frame, on assignments that the
// balancer made. bytes is what is sent, ratio its share of what was sent before.
func BenchmarkWhole(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		a := balanced.New(b, n).Assignment()
		whole, err := wire.WholeFrame(a)
		if err != nil {
			b.Fatal(err)
		}
		packed := whole.Compressed()
		b.Run(fmt.Sprintf("slices=%d/encode", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.EncodeAssignment(a); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("slices=%d/compress", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wire.Deflate(whole.Data)
			}
		})
		for name, f := range map[string]*wire.Frame{"plain": whole, "compressed": packed} {
			b.Run(fmt.Sprintf("slices=%d/receive=%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				var s wire.Assembler
				for b.Loop() {
					if _, err := send(b, &s, f, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(f.Data)), "bytes")
				b.ReportMetric(float64(len(f.Data))/float64(len(whole.Data)), "ratio")
			})
		}
	}
}
