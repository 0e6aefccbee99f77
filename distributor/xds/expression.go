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
	// onePass is how many instructions of a program Go's package regexp takes in one pass at most:
	// some tenth of the time that a longer one takes, by which all alternatives are gone through.
	onePass = 999
	// aroundTree is how many a program has for what stands before and behind a tree's expression.
	aroundTree = 10
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

// count is after how many digits every number is in, and after how many only some are, where no
// more than so many digits are looked at.
func (t *digitTree) count(digits int) (whole, parts int) {
	for _, n := range t.below {
		switch {
		case n == nil:
		case n.all || digits == 1:
			whole++
		default:
			parts++
		}
	}
	return whole, parts
}

// instructions are how many a program of regexp has for what append writes.
func (t *digitTree) instructions(digits int) int {
	whole, parts := t.count(digits)
	n := 2*(parts+min(whole, 1)) - 1 // a digit or class for each alternative, and what chooses between two
	for _, below := range t.below {
		if below != nil && !below.all && digits > 1 {
			n += below.instructions(digits - 1)
		}
	}
	return n
}

// append writes an expression for what is left of the numbers, as far as so many digits tell. No two
// of its alternatives begin with the same digit, so that matchers never have to go back.
func (t *digitTree) append(b []byte, digits int) []byte {
	whole, parts := t.count(digits)
	alternatives := parts + min(whole, 1)
	if alternatives > 1 {
		b = append(b, "(?:"...)
	}
	if whole > 0 {
		b = t.class(b, whole, digits)
	}
	first := whole == 0
	for d, n := range t.below {
		if n == nil || n.all || digits == 1 {
			continue
		}
		if !first {
			b = append(b, '|')
		}
		first = false
		b = n.append(append(b, hexDigits[d]), digits-1)
	}
	if alternatives > 1 {
		b = append(b, ')')
	}
	return b
}

// class writes the digits after which every number is in.
func (t *digitTree) class(b []byte, n, digits int) []byte {
	if n > 1 {
		b = append(b, '[')
	}
	whole := func(d int) bool { return t.below[d] != nil && (t.below[d].all || digits == 1) }
	for d := 0; d < 16; {
		if !whole(d) {
			d++
			continue
		}
		end := d + 1
		for end < 16 && end != 10 && whole(end) {
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

// expression is one of a set of owners. Coarse matches all that exact does, and other keys; it is
// there where it was asked for and exact is not matched in one pass, and coarse is.
type expression struct{ coarse, exact string }

// expressions match the keys of own, which are those of runs that have its rank, and no key of
// a higher rank: one expression, or several if it were longer than most.
func expressions(runs, own []keyRun, most int, coarse bool) []expression {
	var t digitTree
	t.fill(runs, own[0].rank, own[0].lo, own[len(own)-1].hi, 0, 4*(keyDigits-1))
	b := t.append(nil, keyDigits)
	if len(b) > most && len(own) > 1 {
		half := len(own) / 2
		return append(expressions(runs, own[:half], most, coarse), expressions(runs, own[half:], most, coarse)...)
	}
	e := expression{exact: string(append(b, ".*"...))}
	const room = onePass - aroundTree
	if coarse && t.instructions(keyDigits) > room {
		digits := 1
		for t.instructions(digits+1) <= room {
			digits++
		}
		e.coarse = string(append(t.append(nil, digits), ".*"...))
	}
	return []expression{e}
}
