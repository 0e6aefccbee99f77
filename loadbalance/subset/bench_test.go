package subset

import (
	"fmt"
	"slices"
	"testing"
)

func BenchmarkAppend(b *testing.B) {
	for _, a := range Algorithms() {
		for _, n := range []int{256, 4096} {
			b.Run(fmt.Sprintf("%s/N=%d", a.Name(), n), func(b *testing.B) {
				s := Shape{Frontends: 1000, Backends: Dense(n), Size: 20}
				dst := make([]int, 0, n)
				m := 0
				b.ReportAllocs()
				for b.Loop() {
					if _, err := a.Append(dst, s, m); err != nil {
						b.Fatal(err)
					}
					m = (m + 1) % s.Frontends
				}
			})
		}
	}
}

// With room for N no algorithm allocates; with room for k only, just those that
// shuffle all backends do, and then only once.
func TestAllocations(t *testing.T) {
	present := Dense(300).Append(nil)
	holes, err := Present(append(present[:17], present[40:]...))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range variants() {
		for _, b := range []Backends{Dense(300), holes} {
			s := Shape{Frontends: 100, Backends: b, Size: 20}
			measure := func(room int) float64 {
				dst := make([]int, 0, room)
				m := 0
				return testing.AllocsPerRun(20, func() {
					dst, _ = a.Append(dst[:0:room], s, m)
					m++
				})
			}
			if got := measure(b.Len()); got != 0 {
				t.Errorf("%s: %v allocations with room for N", label(a), got)
			}
			switch a.(type) {
			case Random, DeterministicDropped, DeterministicBalanced:
				var grown []int
				want := testing.AllocsPerRun(20, func() { grown = slices.Grow([]int(nil), b.Len()) })
				got := testing.AllocsPerRun(20, func() { grown, _ = a.Append(nil, s, 5) })
				if got != want || cap(grown) < b.Len() {
					t.Errorf("%s: %v allocations without room, want those of growing once, %v", label(a), got, want)
				}
			default:
				if got := measure(s.Size); got != 0 {
					t.Errorf("%s: %v allocations with room for k", label(a), got)
				}
			}
		}
	}
}
