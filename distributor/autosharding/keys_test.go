package autosharding

import (
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
)

func TestKeyFrom(t *testing.T) {
	for _, c := range []struct {
		key  string
		want assignment.SliceKey
	}{
		{"", 0}, {"0", 0}, {"0000000000000000", 0}, {"0000000000000001", 1}, {"00000000000000000", 1},
		{"7fffffffffffffff", assignment.KeyspaceEnd - 1}, {"7fffffffffffffff!", assignment.KeyspaceEnd},
		{"4", 1 << 62}, {"4!", 1 << 62}, {"4z", 5 << 60}, {"4A", 0x4a << 56}, {"7z", assignment.KeyspaceEnd}, {"3fz", 1 << 62},
		{"8", assignment.KeyspaceEnd}, {"8000000000000000", assignment.KeyspaceEnd}, {"zebra", assignment.KeyspaceEnd}, {"/users", 0},
		{":", assignment.KeyspaceEnd}, {"000000000000000g", 16},
	} {
		if got := keyFrom([]byte(c.key)); got != c.want {
			t.Errorf("from %q the first key is %s, want %s", c.key, got, c.want)
		}
	}
}

// The key found is not below the bytes, and the one before is.
func TestKeyFromIsTheFirst(t *testing.T) {
	seed := seedtest.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const alphabet = "0123456789abcdef0123456789abcdef!:@AGg~"
	for range 20_000 {
		b := make([]byte, rnd.IntN(19))
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		k := keyFrom(b)
		if k < assignment.KeyspaceEnd && k.String() < string(b) {
			t.Fatalf("from %q: %s is below", b, k)
		}
		if k > assignment.KeyspaceEnd || k > 0 && (k-1).String() >= string(b) {
			t.Fatalf("from %q: %s, and the one before is not below", b, k)
		}
	}
}
