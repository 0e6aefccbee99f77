package slicelet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
)

// TestFence lets owners of one row take turns, by the rules of the example, over a
// store that carries out some of their writes late or twice, and without an answer. No
// write that was acknowledged may be lost.
func TestFence(t *testing.T) {
	base := seedtest.Seed(t)
	for n := range uint64(500) {
		if err := accounts(base+n, fence.after); err != nil {
			t.Fatalf("seed %d: %v", base+n, err)
		}
	}
	// The same with tokens alone, as a store would compare that knows of no sequence.
	tokens := func(f, g fence) bool { return f.token >= g.token }
	for n := range uint64(500) {
		if accounts(base+n, tokens) != nil {
			return
		}
	}
	t.Error("tokens alone lose nothing here: the test cannot fail")
}

// accounts plays one history against a table that compares by after.
func accounts(seed uint64, after func(f, g fence) bool) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	var stored row
	write := func(f fence, balance int) error {
		if !after(f, stored.fence) {
			return errFenced
		}
		stored = row{f, balance}
		return nil
	}
	var late []func()
	acknowledged, token, sequence := 0, assignment.Generation(1), uint64(0)
	known := false // the owner knows the balance
	balance := 0
	for step := range 60 {
		switch {
		case len(late) > 0 && rng.IntN(3) == 0: // what was sent long ago arrives
			i := rng.IntN(len(late))
			late[i]()
			if stored.balance < acknowledged {
				return fmt.Errorf("step %d: the balance is %d, %d was acknowledged", step, stored.balance, acknowledged)
			}
		case rng.IntN(10) == 0: // another task owns the key, which counts anew
			token, sequence, known = token+1, 0, false
		case rng.IntN(10) == 0: // or the same one again, with the same token
			known = false
		}
		if !known {
			sequence++
			if f := (fence{token, sequence}); after(f, stored.fence) {
				stored.fence, balance, known = f, stored.balance, true
			}
			continue
		}
		sequence++
		f, next := fence{token, sequence}, balance+1
		arrives := func() { _ = write(f, next) }
		if rng.IntN(4) == 0 { // no answer, whether or not it arrives
			late, known = append(late, arrives), false
			continue
		}
		if err := write(f, next); errors.Is(err, errFenced) {
			return fmt.Errorf("step %d: the owner is refused", step)
		}
		if rng.IntN(4) == 0 {
			late = append(late, arrives) // the network has it twice
		}
		balance, acknowledged = next, next
	}
	return nil
}
