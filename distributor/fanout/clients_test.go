package fanout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestClientsAreTold: a receiver of all messages since a complete one knows which clients
// are connected and what index each has, and is told of no other.
func TestClientsAreTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClients()
		connected := make(map[uint64]string) // streams
		holds := make(map[string]int)
		heard := make(map[string]int)
		knows, now, next := false, epoch, uint64(0)
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Second)
			switch rapid.IntRange(0, 4).Draw(t, "act") {
			case 0, 1:
				next++
				id, index := name.Draw(t, "joins"), rapid.IntRange(-1, 3).Draw(t, "index")
				if !slices.Contains(slices.Collect(maps.Values(connected)), id) {
					holds[id] = index
				} else if holds[id] < 0 {
					holds[id] = index
				}
				connected[next] = id
				c.join(now, next, id, index)
			case 2:
				if len(connected) == 0 {
					continue
				}
				by := rapid.SampledFrom(slices.Sorted(maps.Keys(connected))).Draw(t, "leaves")
				id := connected[by]
				delete(connected, by)
				last := !slices.Contains(slices.Collect(maps.Values(connected)), id)
				if c.leave(by, id, knows) != last {
					t.Fatalf("leave of %s does not say %v", id, last)
				}
				if last {
					delete(holds, id)
				}
			case 3:
				id, index := name.Draw(t, "granted"), rapid.IntRange(0, 9).Draw(t, "grant")
				if _, named := heard[id]; !named {
					continue // only those that it knows of get one
				}
				told := slices.Sorted(maps.Keys(c.grant(id, uint32(index))))
				var want []uint64
				for by, other := range connected {
					if other == id {
						want = append(want, by)
					}
				}
				slices.Sort(want)
				if !slices.Equal(told, want) {
					t.Fatalf("streams %v are told, want %v", told, want)
				}
				if len(want) > 0 {
					holds[id], heard[id] = index, index // the assigner knows
				}
			case 4:
				complete := !knows || rapid.Bool().Draw(t, "complete")
				knows = true
				for i, m := range c.take(now, "job", complete) {
					if m.Complete != (complete && i == 0) {
						t.Fatal("complete is not the first")
					}
					if m.Complete {
						clear(heard)
					}
					for _, x := range m.Clients {
						if x.Disconnected {
							if _, ok := heard[x.ClientId]; !ok {
								t.Fatalf("%s has gone, of which nothing was said", x.ClientId)
							}
							delete(heard, x.ClientId)
							continue
						}
						heard[x.ClientId] = -1
						if x.Index != nil {
							heard[x.ClientId] = int(*x.Index)
						}
					}
				}
				if !maps.Equal(heard, holds) {
					t.Fatalf("heard %v, want %v", heard, holds)
				}
			}
		}
		if len(c.added)+len(c.gone) > 10 {
			t.Fatalf("%d added, %d gone", len(c.added), len(c.gone))
		}
	})
}

func TestManyClientsAreNamedInPieces(t *testing.T) {
	c := newClients()
	for i := range uint64(10000) {
		c.join(epoch, i, fmt.Sprintf("%0128d", i), int(i%2)*int(i+1)-1)
	}
	n, last := 0, slicerv1.Client{Index: new(uint32)}
	for i, m := range c.take(epoch.Add(time.Minute), "job", true) {
		if size := proto.Size(m); size > 1<<20 || m.Complete != (i == 0) {
			t.Errorf("message %d: %d bytes, complete %v", i, size, m.Complete)
		}
		for _, x := range m.Clients {
			n++
			if x.Index != nil && last.Index == nil {
				t.Fatal("one that holds an index comes after one that does not")
			}
			if x.AgeMs != 60000 {
				t.Fatalf("age %d ms", x.AgeMs)
			}
			last.Index = x.Index
		}
	}
	if n != 10000 {
		t.Errorf("%d clients named", n)
	}
}
