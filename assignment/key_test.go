package assignment_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

// vectors are the published ones: they never change.
var vectors = []struct{ key, sliceKey string }{
	{"", "77a36d9ba8ec74cc"},
	{"a", "69276278d4c6372d"},
	{"user/4711", "3ba63f24a5990931"},
	{"0123456789abcdef", "2e2dc861a71bb685"},
	{"Grüße, 世界", "46d4ccbb8ad2571e"},
	{"The quick brown fox jumps over the lazy dog", "0592169b0fed38de"},
	{strings.Repeat("0123456789", 11), "76a826e05dea1432"},
}

func TestKeyVectors(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		if got := assignment.KeyOf(v.key).String(); got != v.sliceKey {
			t.Errorf("KeyOf(%q) = %s, want %s", v.key, got, v.sliceKey)
		}
		if got := assignment.KeyOfBytes([]byte(v.key)).String(); got != v.sliceKey {
			t.Errorf("KeyOfBytes(%q) = %s, want %s", v.key, got, v.sliceKey)
		}
		if got := assignment.SliceKey(plainXXH64([]byte(v.key)) >> 1).String(); got != v.sliceKey {
			t.Errorf("plain XXH64 of %q, shifted, is %s, want %s", v.key, got, v.sliceKey)
		}
		if line := "//\t" + v.sliceKey + "  " + strconv.Quote(v.key) + "\n"; len(v.key) < 100 && !strings.Contains(string(doc), line) {
			t.Errorf("doc.go lacks the line %q", line)
		}
	}
}

func TestKeyOfAgainstPlainXXH64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 300 {
		key := make([]byte, n)
		for i := range key {
			key[i] = byte(rng.Uint32())
		}
		want := assignment.SliceKey(plainXXH64(key) >> 1)
		if got := assignment.KeyOf(string(key)); got != want || got >= assignment.KeyspaceEnd {
			t.Fatalf("%d bytes %x: %s, want %s", n, key, got, want)
		}
	}
}

// plainXXH64 follows the algorithm's description step by step, seed 0.
func plainXXH64(in []byte) uint64 {
	const (
		p1 uint64 = 0x9E3779B185EBCA87
		p2 uint64 = 0xC2B2AE3D27D4EB4F
		p3 uint64 = 0x165667B19E3779F9
		p4 uint64 = 0x85EBCA77C2B2AE63
		p5 uint64 = 0x27D4EB2F165667C5
	)
	round := func(acc, lane uint64) uint64 { return bits.RotateLeft64(acc+lane*p2, 31) * p1 }
	length := uint64(len(in))
	acc := p5
	if length >= 32 {
		one := p1
		lanes := [4]uint64{one + p2, p2, 0, -one}
		for ; len(in) >= 32; in = in[32:] {
			for i := range lanes {
				lanes[i] = round(lanes[i], binary.LittleEndian.Uint64(in[8*i:]))
			}
		}
		acc = bits.RotateLeft64(lanes[0], 1) + bits.RotateLeft64(lanes[1], 7) + bits.RotateLeft64(lanes[2], 12) + bits.RotateLeft64(lanes[3], 18)
		for _, lane := range lanes {
			acc = (acc^round(0, lane))*p1 + p4
		}
	}
	acc += length
	for ; len(in) >= 8; in = in[8:] {
		acc = bits.RotateLeft64(acc^round(0, binary.LittleEndian.Uint64(in)), 27)*p1 + p4
	}
	if len(in) >= 4 {
		acc = bits.RotateLeft64(acc^uint64(binary.LittleEndian.Uint32(in))*p1, 23)*p2 + p3
		in = in[4:]
	}
	for _, b := range in {
		acc = bits.RotateLeft64(acc^uint64(b)*p5, 11) * p1
	}
	acc = (acc ^ acc>>33) * p2
	acc = (acc ^ acc>>29) * p3
	return acc ^ acc>>32
}

func TestSliceKeyText(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	var last assignment.SliceKey
	for range 1000 {
		k := assignment.SliceKey(rng.Uint64() >> 1 >> rng.IntN(63))
		s := k.String()
		back, err := assignment.ParseSliceKey(s)
		if err != nil || back != k || len(s) != 16 {
			t.Fatalf("%d prints as %q and reads as %d, %v", k, s, back, err)
		}
		if (k < last) != (s < last.String()) {
			t.Fatalf("order of %s and %s", k, last)
		}
		last = k
	}
	for _, bad := range []string{"", "0", "8000000000000001", "ffffffffffffffff", "000000000000000G", "00000000000000AB", "0x00000000000001", "+000000000000001", "00000000000000000", "_000000000000000"} {
		_, err := assignment.ParseSliceKey(bad)
		checkFieldError(t, bad, err, "slice key: "+strconv.Quote(bad))
	}
	if k, err := assignment.ParseSliceKey("8000000000000000"); err != nil || k != assignment.KeyspaceEnd {
		t.Errorf("end of the keyspace: %s, %v", k, err)
	}
}

func TestSliceJSON(t *testing.T) {
	s := assignment.Slice{Start: 1, End: assignment.KeyspaceEnd}
	data, err := json.Marshal(s)
	if err != nil || string(data) != `{"start":"0000000000000001","end":"8000000000000000"}` {
		t.Fatalf("%s, %v", data, err)
	}
	var back assignment.Slice
	if err := json.Unmarshal(data, &back); err != nil || back != s {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"start":"1"}`), &back); err == nil {
		t.Error("a short key is read")
	}
}

func TestSlice(t *testing.T) {
	s := assignment.Slice{Start: 10, End: 20}
	for _, tc := range []struct {
		k    assignment.SliceKey
		want bool
	}{{9, false}, {10, true}, {19, true}, {20, false}} {
		if s.Contains(tc.k) != tc.want {
			t.Errorf("Contains(%d) is %v", tc.k, !tc.want)
		}
	}
	for _, tc := range []struct {
		t    assignment.Slice
		want assignment.Slice
		ok   bool
	}{
		{assignment.Slice{Start: 15, End: 30}, assignment.Slice{Start: 15, End: 20}, true},
		{assignment.Slice{Start: 0, End: 11}, assignment.Slice{Start: 10, End: 11}, true},
		{assignment.Slice{Start: 20, End: 30}, assignment.Slice{}, false},
		{assignment.Slice{Start: 0, End: 10}, assignment.Slice{}, false},
		{assignment.Keyspace, s, true},
	} {
		got, ok := s.Intersect(tc.t)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("with %v: %v, %v", tc.t, got, ok)
		}
	}
	if w, f := assignment.Keyspace.Width(), assignment.Keyspace.Fraction(); w != 1<<63 || f != 1 {
		t.Errorf("keyspace: width %d, fraction %v", w, f)
	}
	if f := (assignment.Slice{Start: 0, End: 1 << 60}).Fraction(); f != .125 {
		t.Errorf("fraction %v", f)
	}
	for _, bad := range []assignment.Slice{{}, {Start: 2, End: 2}, {Start: 3, End: 2}, {Start: 0, End: assignment.KeyspaceEnd + 1}, {Start: math.MaxUint64, End: 0}} {
		checkFieldError(t, bad.String(), bad.Valid(), "slice: ")
	}
	if err := assignment.Keyspace.Valid(); err != nil {
		t.Error(err)
	}
}

// Rows stored under the prefix of their key are found by scanning the slice's
// range, and only they.
func TestStorageRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 1000 {
		a, b := assignment.SliceKey(rng.Uint64()>>1), assignment.SliceKey(rng.Uint64()>>1)
		s := assignment.Slice{Start: min(a, b), End: max(a, b) + 1}
		lo, hi := s.StorageRange()
		for _, k := range []assignment.SliceKey{s.Start, s.End - 1, s.End, s.Start - 1, assignment.SliceKey(rng.Uint64() >> 1)} {
			if k >= assignment.KeyspaceEnd {
				continue
			}
			row := k.StoragePrefix() + "/rest"
			if in := lo <= row && row < hi; in != s.Contains(k) {
				t.Fatalf("row of %s in the range of %s: %v", k, s, in)
			}
		}
	}
}
