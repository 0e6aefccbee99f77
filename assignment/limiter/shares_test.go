package limiter

import "testing"

// TestShares: no key takes all, and what was taken comes back.
func TestShares(t *testing.T) {
	const most, each = 64, 32
	s := NewShares(most, each)
	took := func(key string) (n int, err error) {
		for {
			if err = s.Take(key); err != nil {
				return n, err
			}
			n++
		}
	}
	a, ofA := took("a")
	b, ofB := took("b")
	c, ofC := took("c")
	if a != each || b != each || a+b != most || c != 0 {
		t.Errorf("%d, %d and %d", a, b, c)
	}
	if ofA != ErrShareTaken || ofB != ErrAllTaken || ofC != ErrAllTaken {
		t.Errorf("refused by %v, %v and %v", ofA, ofB, ofC)
	}
	s.Give("a")
	if err := s.Take("c"); err != nil {
		t.Errorf("what was given back: %v", err)
	}
	if n, _ := s.Taken(); n != most {
		t.Errorf("%d are taken", n)
	}
	for range each {
		s.Give("b")
	}
	if _, n := s.Taken(); n != 2 {
		t.Errorf("%d keys are kept", n)
	}
}
