package flight

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
)

func ended(ctx context.Context) bool { return context.Cause(ctx) == ErrDead }

func TestDeath(t *testing.T) {
	var a, b Group
	ctx, f := New(context.Background())
	staying, g := New(context.Background())
	landed, h := New(context.Background())
	f.At(&a)
	g.At(&b)
	h.At(&a)
	h.Land()
	a.Die()
	if !ended(ctx) || ended(staying) || ended(landed) {
		t.Errorf("ended: %t at the dead task, %t at another, %t with an answer; want only the first", ended(ctx), ended(staying), ended(landed))
	}
	g.At(&a)
	if !ended(staying) {
		t.Error("who comes after the death waits for ever")
	}
	for _, x := range []*Flight{f, g, h} {
		x.End()
	}
	if landed.Err() == nil || ended(landed) {
		t.Errorf("after its end: %v", context.Cause(landed))
	}
	if a.first != nil || b.first != nil {
		t.Error("a group holds on to what is over")
	}
}

// A retry moves on to another task.
func TestMoves(t *testing.T) {
	var a, b Group
	ctx, f := New(context.Background())
	f.At(&a)
	f.At(&b)
	f.At(&b)
	a.Die()
	if ended(ctx) {
		t.Error("ended by the death of a task that it has left")
	}
	b.Die()
	if !ended(ctx) {
		t.Error("not ended by the death of its task")
	}
	f.End()
	over, g := New(context.Background())
	g.End()
	g.At(&a)
	if a.first != nil || ended(over) {
		t.Error("an attempt that is over came back")
	}
}

// A connection has one attempt after the other, at the same task.
func TestLeaves(t *testing.T) {
	var a Group
	var why []error
	f := Of(func(err error) { why = append(why, err) })
	f.At(&a)
	f.Leave()
	if a.first != nil {
		t.Error("a group holds on to what has left")
	}
	f.At(&a)
	f.Leave()
	a.Die()
	if len(why) > 0 {
		t.Error("ended by the death of a task that it has left")
	}
	f.At(&a)
	if len(why) != 1 || why[0] != ErrDead {
		t.Errorf("at a dead task it is ended %d times: %v", len(why), why)
	}
}

// Whatever happens at once, nothing stays listed and no request waits at a dead task.
func TestTogether(t *testing.T) {
	for round := range 200 {
		groups := make([]Group, 3)
		var wg sync.WaitGroup
		for i := range 20 {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			wg.Go(func() {
				ctx, f := New(context.Background())
				for range 5 {
					f.At(&groups[rng.IntN(len(groups))])
				}
				if rng.IntN(2) == 0 {
					f.At(&groups[0])
					<-ctx.Done()
				}
				f.End()
			})
		}
		wg.Go(groups[0].Die)
		wg.Wait()
		for i := range groups {
			if groups[i].first != nil {
				t.Fatal("a group holds on to what is over")
			}
		}
	}
}
