package xds

const (
	// keyDigits is the length of a slice key's text form; cutDigits is how much of it
	// decides, but for the keys with which slices begin and end, and for narrow slices.
	keyDigits = 16
	cutDigits = 8
	// cutBits is what lies behind the first cutDigits digits.
	cutBits = 4 * (keyDigits - cutDigits)
	// maxExpression bounds an expression, bytes, and maxShortExpression one for RE2: with the
	// 8 MiB that it has in C-core it cannot make a DFA of 55 KB.
	maxExpression      = 64 << 10
	maxShortExpression = 32 << 10
)

const hexDigits = "0123456789abcdef"

// keyRun is the keys from lo to below hi: a slice, or several neighbours with the same owners.
// Rank is the place of these owners' routes among all.
type keyRun struct {
	lo, hi uint64
	rank   int
}

// narrow reports whether the first cutDigits digits of all keys are the same.
func (r keyRun) narrow() bool { return r.lo>>cutBits == (r.hi-1)>>cutBits }

// within is what counts of r where keys of so many last bits are looked at, from base: all,
// but where runs share the first cutDigits digits only the key with which r begins or ends
// there, unless it is narrow. A hot key is where slices begin and end.
func (r keyRun) within(base uint64, bits int) (lo, hi uint64) {
	switch {
	case bits >= cutBits || r.narrow():
		return r.lo, r.hi
	case r.lo>>cutBits == base>>cutBits:
		return r.lo, r.lo + 1
	}
	return r.hi - 1, r.hi
}

// digitTree holds keys by their digits, the highest first.
type digitTree struct {
	all   bool // every key from here on
	below [16]*digitTree
}

// fill adds the keys of runs of a rank that begin from lo to below hi, for which the digits
// before are base and so many bits follow the next digit. No key of a higher rank is in, but
// keys of lower ranks may be, if that is shorter: their routes have taken them.
func (t *digitTree) fill(runs []keyRun, rank int, lo, hi uint64, base uint64, bits int) {
	for d := range t.below {
		from := base + uint64(d)<<bits
		for len(runs) > 0 && runs[0].hi <= from {
			runs = runs[1:]
		}
		end := from + 1<<bits
		own, others := false, false
		for _, r := range runs {
			if r.lo >= end || own && others {
				break
			}
			if first, after := r.within(from, bits); first < end && after > from {
				own = own || r.rank == rank && lo <= r.lo && r.lo < hi
				others = others || r.rank > rank
			}
		}
		if !own {
			continue
		}
		t.below[d] = &digitTree{all: !others}
		if others {
			t.below[d].fill(runs, rank, lo, hi, from, bits-4)
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

// expressions match the keys of own, which are those of runs that have its rank, and no key of
// a higher rank: one expression, or several if it were longer than most.
func expressions(runs, own []keyRun, most int) []string {
	var t digitTree
	t.fill(runs, own[0].rank, own[0].lo, own[len(own)-1].hi, 0, 4*(keyDigits-1))
	b := t.append(nil)
	if len(b) > most && len(own) > 1 {
		half := len(own) / 2
		return append(expressions(runs, own[:half], most), expressions(runs, own[half:], most)...)
	}
	return []string{string(append(b, ".*"...))}
}
