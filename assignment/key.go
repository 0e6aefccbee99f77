package assignment

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// SliceKey is a point of the 63-bit space that application keys are hashed
// into: 0 to 2^63 - 1 (Slicer paper, section 2.1).
type SliceKey uint64

const (
	// KeyBits is the width of the space.
	KeyBits = 63
	// KeyspaceEnd is one past the last SliceKey. It bounds the last slice and
	// is itself no key.
	KeyspaceEnd SliceKey = 1 << KeyBits
)

// MaxKeyLen bounds an application key that goes with a request, bytes. What only
// hashes keys takes any.
const MaxKeyLen = 4096

// CheckKey returns a *FieldError for a key that is longer. The empty string is a key
// like any other.
func CheckKey(key string) error {
	if len(key) <= MaxKeyLen {
		return nil
	}
	return &FieldError{Field: "key", Value: fmt.Sprintf("%d bytes", len(key)), Allowed: fmt.Sprintf("at most %d bytes", MaxKeyLen)}
}

// KeyOf hashes an application key: XXH64 with seed 0, shifted right by one.
// Any string has a slice key; see CheckKey.
func KeyOf(key string) SliceKey { return SliceKey(xxhash.Sum64String(key) >> 1) }

// KeyOfBytes is KeyOf for a byte slice.
func KeyOfBytes(key []byte) SliceKey { return SliceKey(xxhash.Sum64(key) >> 1) }

// String is the text form: 16 lower-case hexadecimal digits, so that the order
// of texts is the order of keys. KeyspaceEnd prints as 8000000000000000.
func (k SliceKey) String() string { return hex16(uint64(k)) }

// MarshalText gives the text form, in JSON too. It never fails.
func (k SliceKey) MarshalText() ([]byte, error) { return appendHex16(nil, uint64(k)), nil }

// UnmarshalText is ParseSliceKey.
func (k *SliceKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParseSliceKey(string(text))
	return err
}

// ParseSliceKey reads the text form. It accepts KeyspaceEnd, as the end of a slice.
func ParseSliceKey(s string) (SliceKey, error) {
	v, err := parseHex16("slice key", s)
	if err == nil && SliceKey(v) > KeyspaceEnd {
		err = &FieldError{"slice key", s, "at most " + KeyspaceEnd.String()}
	}
	if err != nil {
		return 0, err
	}
	return SliceKey(v), nil
}

func hex16(v uint64) string {
	var b [16]byte
	return string(appendHex16(b[:0], v))
}

func appendHex16(b []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&15])
	}
	return b
}

// parseHex16 reads what hex16 prints and nothing else.
func parseHex16(field, s string) (v uint64, err error) {
	ok := len(s) == 16
	for i := 0; ok && i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			ok = false
		}
	}
	if !ok {
		return 0, &FieldError{field, s, "16 lower-case hexadecimal digits"}
	}
	return v, nil
}

// StoragePrefix is the prefix to put before a key's row in a store that is to
// be scanned by slice (Slicer paper, section 2.2): its text form.
func (k SliceKey) StoragePrefix() string { return k.String() }

// Slice is the range [Start, End) of slice keys. A valid slice is not empty.
type Slice struct {
	Start SliceKey `json:"start"`
	End   SliceKey `json:"end"`
}

// Keyspace is the whole space.
var Keyspace = Slice{0, KeyspaceEnd}

// Contains reports whether k lies in the slice.
func (s Slice) Contains(k SliceKey) bool { return s.Start <= k && k < s.End }

// Width is the number of slice keys in the slice.
func (s Slice) Width() uint64 { return uint64(s.End - s.Start) }

// Fraction is the share of the keyspace that the slice covers, 0 to 1.
func (s Slice) Fraction() float64 { return float64(s.Width()) / float64(KeyspaceEnd) }

// Intersect is the part that both slices cover; ok is false if there is none.
func (s Slice) Intersect(t Slice) (both Slice, ok bool) {
	both = Slice{max(s.Start, t.Start), min(s.End, t.End)}
	return both, both.Start < both.End
}

// String is "[start,end)" in the keys' text form.
func (s Slice) String() string { return "[" + s.Start.String() + "," + s.End.String() + ")" }

// StorageRange is the half-open range of storage prefixes that holds the rows
// of the slice and no others: scan from lo, inclusive, to hi, exclusive.
func (s Slice) StorageRange() (lo, hi string) { return s.Start.String(), s.End.String() }

// Valid reports why the slice is not one, or nil.
func (s Slice) Valid() error {
	if s.Start >= s.End || s.End > KeyspaceEnd {
		return &FieldError{Field: "slice", Value: s.String(), Allowed: "start below end, end at most " + KeyspaceEnd.String()}
	}
	return nil
}

// FieldError says that a value is not allowed. Its text names the field, the
// value and what is allowed.
type FieldError struct {
	Field   string // as the user wrote it, such as "balance.move_budget"
	Value   any
	Allowed string
}

func (e *FieldError) Error() string {
	v := fmt.Sprintf("%v", e.Value)
	if s, ok := e.Value.(string); ok {
		v = strconv.Quote(Clip(s, maxShown))
	}
	return fmt.Sprintf("%s: %s is not allowed: want %s", e.Field, v, e.Allowed)
}
