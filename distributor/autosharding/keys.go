package autosharding

import "github.com/slicer-project/slicer/assignment"

// keyFrom is the first slice key whose text form is not below the bytes: where a
// range of byte strings that begins there begins among slice keys. It is the end
// of the keyspace if there is none.
func keyFrom(b []byte) assignment.SliceKey {
	var k uint64
	for i := range keySize {
		rest := 4 * (keySize - 1 - i)
		if i == len(b) {
			return assignment.SliceKey(k) // the digits that are missing are zeros
		}
		d, exact := digitFrom(b[i])
		if i == 0 && d >= 8 {
			return assignment.KeyspaceEnd
		}
		// A digit of 16, from a byte above f, carries into the one before.
		k += uint64(d) << rest
		if !exact {
			return assignment.SliceKey(k)
		}
	}
	if len(b) > keySize {
		k++ // the text form is a prefix, and so below
	}
	return assignment.SliceKey(k)
}

// digitFrom is the first hex digit that is not below c, 16 if there is none, and
// whether it is c.
func digitFrom(c byte) (d int, exact bool) {
	switch {
	case c < '0':
		return 0, false
	case c <= '9':
		return int(c - '0'), true
	case c < 'a':
		return 10, false
	case c <= 'f':
		return int(c-'a') + 10, true
	}
	return 16, false
}
