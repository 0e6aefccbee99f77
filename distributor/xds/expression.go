package xds

import "github.com/slicer-project/slicer/assignment"

const (
	// keyDigits is the length of a slice key's text form; cutDigits is how much of it
	// decides between slices that are not narrow.
	keyDigits = 16
	cutDigits = 8
	// cutBits is what lies behind the first cutDigits digits.
	cutBits = 4 * (keyDigits - cutDigits)
	// maxExpression bounds an expression, bytes. (RE2 in Node fails at some 100 KB.)
	maxExpression = 32 << 10
)

const hexDigits = "0123456789abcdef"

// span is the numbers from lo to below hi.
type span struct{ lo, hi uint64 }

// spanOf is a slice in numbers of its first digits, or in whole keys if nothing were left
// of it.
func spanOf(s assignment.Slice) (p span, narrow bool) {
	if p = (span{uint64(s.Start) >> cutBits, uint64(s.End) >> cutBits}); p.lo < p.hi {
		return p, false
	}
	return span{uint64(s.Start), uint64(s.End)}, true
}

// digitTree holds numbers by their digits, the highest first.
type digitTree struct {
	all   bool // every number from here on
	below [16]*digitTree
}

// add adds numbers of so many digits.
func (t *digitTree) add(s span, digits int) {
	rest := 4 * (digits - 1)
	for d := s.lo >> rest; d < 16 && d<<rest < s.hi; d++ {
		low := d << rest
		in := span{max(s.lo, low) - low, min(s.hi-low, 1<<rest)}
		n := t.below[d]
		if n == nil {
			n = new(digitTree)
			t.below[d] = n
		}
		if in == (span{0, 1 << rest}) {
			n.all = true
		} else {
			n.add(in, digits-1)
		}
	}
}

// append writes an expression for what is left of the numbers. No two of its alternatives
// begin with the same digit, so that matchers never have to go back.
func (t *digitTree) append(b []byte) []byte {
	whole, parts := 0, 0
	for _, n := range t.below {
		switch {
		case n == nil:
		case n.all:
			whole++
		default:
			parts++
		}
	}
	alternatives := parts + min(whole, 1)
	if alternatives > 1 {
		b = append(b, "(?:"...)
	}
	if whole > 0 {
		b = t.class(b, whole)
	}
	first := whole == 0
	for d, n := range t.below {
		if n == nil || n.all {
			continue
		}
		if !first {
			b = append(b, '|')
		}
		first = false
		b = n.append(append(b, hexDigits[d]))
	}
	if alternatives > 1 {
		b = append(b, ')')
	}
	return b
}

// class writes the digits after which every number is in.
func (t *digitTree) class(b []byte, n int) []byte {
	if n > 1 {
		b = append(b, '[')
	}
	for d := 0; d < 16; {
		if t.below[d] == nil || !t.below[d].all {
			d++
			continue
		}
		end := d + 1
		for end < 16 && end != 10 && t.below[end] != nil && t.below[end].all {
			end++
		}
		b = append(b, hexDigits[d])
		if end-d > 2 {
			b = append(b, '-')
		}
		if end-d > 1 {
			b = append(b, hexDigits[end-1])
		}
		d = end
	}
	if n > 1 {
		b = append(b, ']')
	}
	return b
}

// expressions match the keys of spans, which are in order and apart, by so many of their
// first digits: one expression, or several if it were too long.
func expressions(spans []span, digits int) []string {
	var t digitTree
	for _, s := range spans {
		t.add(s, digits)
	}
	b := t.append(nil)
	if len(b) > maxExpression && len(spans) > 1 {
		half := len(spans) / 2
		return append(expressions(spans[:half], digits), expressions(spans[half:], digits)...)
	}
	return []string{string(append(b, ".*"...))}
}
