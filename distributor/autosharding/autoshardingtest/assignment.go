package autoshardingtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Assignment is one as it was sent.
type Assignment struct {
	Generation int64
	// Slices in the order in which they came.
	Slices []Slice
	// Endpoints of all chunks, in the order of chunks.
	Endpoints []string
	// Chunks is how many there were, and Sizes the size of each message, the
	// metadata's last, bytes.
	Chunks int
	Sizes  []int
}

// Slice is a range of keys. Without End it reaches to the end of the keyspace.
type Slice struct {
	Start     string
	End       *string
	Endpoints []int
	// Gap says that it was not sent: the client has put it where there was nothing.
	Gap bool
}

// chunk is an AssignmentChunk.
type chunk struct {
	slices    []Slice
	endpoints []string
}

func (a *Assignment) join(chunks []chunk) {
	for _, k := range chunks {
		a.Slices = append(a.Slices, k.slices...)
		a.Endpoints = append(a.Endpoints, k.endpoints...)
	}
}

// Fill is what a client makes of it: in order, from the empty key to the end of
// the keyspace, gaps filled with slices that have no endpoints. Slices that are
// not valid count as gaps; remarks say what was wrong with them. The error says
// that nothing is left.
func (a *Assignment) Fill() (filled []Slice, remarks []string, err error) {
	var valid []Slice
	for i, s := range a.Slices {
		switch bad := slices.IndexFunc(s.Endpoints, func(e int) bool { return e < 0 || e >= len(a.Endpoints) }); {
		case s.End != nil && *s.End <= s.Start:
			remarks = append(remarks, fmt.Sprintf("slice %d is empty", i))
		case bad >= 0:
			remarks = append(remarks, fmt.Sprintf("slice %d names endpoint %d of %d", i, s.Endpoints[bad], len(a.Endpoints)))
		default:
			valid = append(valid, s)
		}
	}
	slices.SortStableFunc(valid, func(x, y Slice) int { return strings.Compare(x.Start, y.Start) })
	at, ended := "", false
	for _, s := range valid {
		if ended || s.Start < at {
			remarks = append(remarks, fmt.Sprintf("the slice from %q overlaps", s.Start))
			continue
		}
		if s.Start > at {
			remarks = append(remarks, fmt.Sprintf("gap from %q to %q", at, s.Start))
			filled = append(filled, Slice{Start: at, End: &s.Start, Gap: true})
		}
		filled = append(filled, s)
		if s.End == nil {
			ended = true
		} else {
			at = *s.End
		}
	}
	if len(filled) == 0 {
		return nil, remarks, errors.New("no usable slice")
	}
	if !ended {
		remarks = append(remarks, fmt.Sprintf("gap from %q", at))
		filled = append(filled, Slice{Start: at, Gap: true})
	}
	return filled, remarks, nil
}

// Lookup is the slice of a key, of slices as Fill returns them.
func Lookup(filled []Slice, key string) Slice {
	i, found := slices.BinarySearchFunc(filled, key, func(s Slice, k string) int { return strings.Compare(s.Start, k) })
	if !found {
		i--
	}
	return filled[i]
}

// value is a field's: one of them, by its type.
type value struct {
	bytes  []byte
	number uint64
}

// fields calls f for each field of a message.
func fields(b []byte, f func(protowire.Number, value) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v value
		switch kind {
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(b)
		default:
			return fmt.Errorf("field %d is of type %d", field, kind)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(field, v); err != nil {
			return err
		}
	}
	return nil
}

func parseChunk(b []byte) (k chunk, err error) {
	err = fields(b, func(f protowire.Number, v value) error {
		switch f {
		case 1:
			s, err := parseSlice(v.bytes)
			k.slices = append(k.slices, s)
			return err
		case 2:
			name := ""
			err := fields(v.bytes, func(f protowire.Number, v value) error {
				if f == 1 {
					name = string(v.bytes)
				}
				return nil
			})
			k.endpoints = append(k.endpoints, name)
			return err
		}
		return fmt.Errorf("field %d of a chunk", f)
	})
	return k, err
}

func parseSlice(b []byte) (s Slice, err error) {
	err = fields(b, func(f protowire.Number, v value) error {
		switch f {
		case 1:
			return fields(v.bytes, func(f protowire.Number, v value) error {
				text := string(v.bytes)
				switch f {
				case 1:
					s.Start = text
				case 2:
					s.End = &text
				}
				return nil
			})
		case 2:
			index := 0
			err := fields(v.bytes, func(f protowire.Number, v value) error {
				if f == 1 {
					index = int(int32(v.number))
				}
				return nil
			})
			s.Endpoints = append(s.Endpoints, index)
			return err
		}
		return fmt.Errorf("field %d of a slice", f)
	})
	return s, err
}
