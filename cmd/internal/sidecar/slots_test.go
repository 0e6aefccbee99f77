package sidecar

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

func labelled(ctx context.Context, c overload.Criticality, cohort int) context.Context {
	return overload.WithCohort(overload.WithCriticality(ctx, c), cohort)
}

// TestSlots: never are more slots taken than there are, none is free while a request waits, and a
// request neither waits for longer than it may nor has a slot before one of a higher priority that
// waits.
func TestSlots(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 18))
			most := 1 + rnd.Int64N(6)
			s := newSlots(int(most))
			var atOnce, served, refused atomic.Int64
			for range 1000 {
				time.Sleep(time.Duration(rnd.ExpFloat64() * float64(time.Millisecond)))
				ctx, cancel := labelled(t.Context(), overload.Sheddable+overload.Criticality(rnd.IntN(4)), rnd.IntN(overload.Cohorts)), context.CancelFunc(func() {})
				left := time.Duration(0)
				if rnd.IntN(2) == 0 {
					left = time.Duration(rnd.IntN(100)) * time.Millisecond
					ctx, cancel = context.WithTimeout(ctx, left)
				}
				took := time.Duration(rnd.ExpFloat64() * float64(most) * float64(2*time.Millisecond))
				go func() {
					defer cancel()
					began := time.Now()
					ok, _ := s.take(ctx)
					if waited := time.Since(began); waited > overload.MayWait(left) {
						t.Errorf("seed %d: a request has waited for %s, which may for %s", seed, waited, overload.MayWait(left))
					}
					if !ok {
						refused.Add(1)
						return
					}
					served.Add(1)
					if n := atOnce.Add(1); n > most {
						t.Errorf("seed %d: %d have slots of %d", seed, n, most)
					}
					time.Sleep(took)
					atOnce.Add(-1)
					s.release()
				}()
				synctest.Wait()
				s.mu.Lock()
				if n := len(s.waiting); n > mostWaiting || n > 0 && atOnce.Load() < most {
					t.Errorf("seed %d: %d wait, and %d of %d slots are taken", seed, n, atOnce.Load(), most)
				}
				for i := range s.waiting {
					if i > 0 && s.waiting[i-1].priority < s.waiting[i].priority {
						t.Errorf("seed %d: a request waits behind one of a lower priority", seed)
					}
				}
				s.mu.Unlock()
			}
			time.Sleep(time.Minute)
			s.mu.Lock()
			defer s.mu.Unlock()
			if n, no := served.Load(), refused.Load(); s.taken != 0 || n+no != 1000 || n < 100 || no < 100 {
				t.Errorf("seed %d: %d served, %d refused, %d slots still taken", seed, n, no, s.taken)
			}
		})
	}
}

// TestSlotsByCriticality: where no slot is free and no more may wait, a request is refused for a more
// critical one, of which the slots go to the most critical first.
func TestSlotsByCriticality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		if ok, waited := s.take(t.Context()); !ok || waited {
			t.Fatal("no slot is free")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []overload.Criticality
		var shed int
		send := func(c overload.Criticality) {
			go func() {
				if ok, _ := s.take(labelled(ctx, c, 0)); !ok {
					shed++
					return
				}
				got = append(got, c)
				s.release()
			}()
			synctest.Wait()
		}
		for range mostWaiting {
			send(overload.SheddablePlus)
		}
		if send(overload.SheddablePlus); shed != 1 {
			t.Errorf("%d refused, not the one that came last", shed)
		}
		send(overload.Sheddable)
		if send(overload.CriticalPlus); shed != 3 {
			t.Errorf("%d refused, not those that are less critical", shed)
		}
		send(overload.Critical)
		s.release()
		synctest.Wait()
		if len(got) != mostWaiting || got[0] != overload.CriticalPlus || got[1] != overload.Critical || got[2] != overload.SheddablePlus {
			t.Errorf("slots went to %v", got)
		}
	})
}
