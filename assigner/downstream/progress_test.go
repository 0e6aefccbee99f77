package downstream

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What several Distributors say adds up to what one list of all subscribers says.
func TestProgressAgainstPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const newest, clerk = assignment.Generation(1000), slicerv1.Role_ROLE_CLERK
		said := make(map[string]*acked)
		var times []time.Duration
		holders := make(map[int64]uint32)
		waiting, slow := uint32(0), uint32(0)
		for d := range rapid.IntRange(0, 5).Draw(t, "distributors") {
			m := &slicerv1.Acks{SlowTotal: uint32(rapid.IntRange(0, 20).Draw(t, "slow"))}
			slow += m.SlowTotal
			for i := range min(m.SlowTotal, maxSlow) {
				m.Slow = append(m.Slow, &slicerv1.SlowSubscriber{Name: fmt.Sprint("clerk ", d, "-", i), WaitingMs: int64(i)})
			}
			behind := uint32(rapid.IntRange(0, 30).Draw(t, "behind"))
			m.Holders = append(m.Holders, &slicerv1.Holders{Role: clerk, Generation: int64(newest) - 1 - int64(d), Subscribers: behind})
			holders[int64(newest)-1-int64(d)] += behind
			waiting += behind
			if rapid.Bool().Draw(t, "has the newest") {
				here := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Minute)), 0, 50).Draw(t, "times")
				m.Holders = append(m.Holders, &slicerv1.Holders{Role: clerk, Generation: int64(newest), Subscribers: uint32(len(here))})
				holders[int64(newest)] += uint32(len(here))
				s := &slicerv1.Spread{Role: clerk, Generation: int64(newest), Waiting: behind}
				counts := make([]uint32, wire.SpreadBuckets)
				for _, ns := range here {
					times = append(times, time.Duration(ns))
					counts[wire.SpreadBucket(time.Duration(ns))]++
					s.LastUs = max(s.LastUs, (time.Duration(ns) + time.Microsecond - 1).Microseconds())
				}
				for i, n := range counts {
					if n > 0 {
						s.Bucket, s.Count = append(s.Bucket, uint32(i)), append(s.Count, n)
					}
				}
				m.Spreads = append(m.Spreads, s)
			}
			said[fmt.Sprint("d", d)] = newAcked("", 0, m)
		}
		p := progress(time.Second, newest, said)
		for _, h := range p.Holders {
			if h.Subscribers != holders[h.Generation] {
				t.Fatalf("%d hold generation %d, want %d", h.Subscribers, h.Generation, holders[h.Generation])
			}
		}
		if p.SlowTotal != slow || len(p.Slow) > maxSlow || len(p.Slow) > 0 && p.Slow[0].WaitingMs < 1000 {
			t.Fatalf("%d are slow, want %d; %v", p.SlowTotal, slow, p.Slow)
		}
		if len(times)+int(waiting) == 0 {
			if len(p.Spreads) != 0 {
				t.Fatalf("none is waited for, yet %v", p.Spreads)
			}
			return
		}
		got := p.Spreads[0]
		if got.Reached != uint32(len(times)) || got.Waiting != waiting {
			t.Fatalf("%d have it and %d have not, want %d and %d", got.Reached, got.Waiting, len(times), waiting)
		}
		slices.Sort(times)
		for share, us := range map[float64]int64{.5: got.P50Us, .99: got.P99Us, 1: got.LastUs} {
			rank := max(int(math.Ceil(share*float64(len(times)+int(waiting)))), 1)
			if rank > len(times) {
				if us != -1 {
					t.Fatalf("%v is %d us, but too few have it", share, us)
				}
				continue
			}
			want := times[rank-1]
			is := time.Duration(us) * time.Microsecond
			if is < want-time.Microsecond || float64(is) > 1.1*float64(max(want, time.Millisecond)) {
				t.Fatalf("%v of them took %s, want about %s", share, is, want)
			}
		}
	})
}

// Whatever a Distributor says is bounded, and harms nothing.
func TestProgressOfNonsense(t *testing.T) {
	m := &slicerv1.Acks{SlowTotal: math.MaxUint32}
	for i := range 1000 {
		m.Holders = append(m.Holders, &slicerv1.Holders{Role: slicerv1.Role(i % 5), Generation: int64(-i), Subscribers: math.MaxUint32})
		m.Spreads = append(m.Spreads, &slicerv1.Spread{
			Role: slicerv1.Role(1 + i%2), Generation: 7, Waiting: math.MaxUint32, LastUs: math.MinInt64,
			Bucket: []uint32{math.MaxUint32, 3}, Count: []uint32{math.MaxUint32},
		})
		m.Slow = append(m.Slow, nil)
	}
	p := progress(0, 7, map[string]*acked{"d1": newAcked("", 0, m), "d2": newAcked("", 0, m), "d3": newAcked("", 0, &slicerv1.Acks{Holders: []*slicerv1.Holders{nil}, Spreads: []*slicerv1.Spread{nil}})})
	if len(p.Holders) > 2*(maxHolders+1) || len(p.Slow) > maxSlow || len(p.Spreads) != 2 {
		t.Errorf("%d holders, %d slow, %d spreads", len(p.Holders), len(p.Slow), len(p.Spreads))
	}
	for i, n := 0, 0; i < 100; i++ {
		all := make([]*slicerv1.Holders, i)
		for k := range all {
			all[k] = &slicerv1.Holders{Role: slicerv1.Role_ROLE_CLERK, Generation: int64(i - k), Subscribers: 1}
		}
		n = 0
		for _, h := range fold(all) {
			n += int(h.Subscribers)
		}
		if n != i {
			t.Errorf("%d of %d are left", n, i)
		}
	}
}
