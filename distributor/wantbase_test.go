package distributor

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// bases counts what was asked for.
func (f *fakeAssigner) bases() (asked []*slicerv1.WantBase) {
	for _, m := range f.hear() {
		if w := m.GetWantBase(); w != nil {
			asked = append(asked, w)
		}
	}
	return asked
}

// A Distributor that has just started asks for what most of its subscribers hold,
// and sends them deltas; when that is not to be had, or does not come, the whole.
func TestRestartAsksForTheBase(t *testing.T) {
	for _, c := range []struct {
		name string
		past func(first *assignment.Assignment) map[int64]*assignment.Assignment
		kind string
		soon bool
	}{
		{"had", func(a *assignment.Assignment) map[int64]*assignment.Assignment {
			return map[int64]*assignment.Assignment{int64(a.Generation()): a}
		}, fanout.KindDelta, true},
		{"not had", func(*assignment.Assignment) map[int64]*assignment.Assignment {
			return map[int64]*assignment.Assignment{}
		}, fanout.KindWhole, true},
		{"another than asked for", func(a *assignment.Assignment) map[int64]*assignment.Assignment {
			return map[int64]*assignment.Assignment{int64(a.Generation()): firstOf(t, testJob, testStore, a.Generation(), 50)}
		}, fanout.KindWhole, false},
		{"no answer", func(*assignment.Assignment) map[int64]*assignment.Assignment { return nil }, fanout.KindWhole, false},
	} {
		inBubble(t, func(t *testing.T) {
			n := newNetwork()
			f := n.assigner(t, "a1", assigner1)
			first := firstOf(t, testJob, testStore, baseGen, 200)
			second := after(t, first, 5)
			f.past = c.past(first)
			f.know(testJob)
			w := newWorld(t, n, assigner1)
			var subs []*fakeSub
			for i := range 10 {
				subs = append(subs, subscribe(t, w.cc, holding(clerkHello(fmt.Sprint("c", i)), first), first))
			}
			// All are there before there is something to send: those that came earlier
			// would be sent the whole before there are enough to ask for the base.
			synctest.Wait()
			f.set(second)
			if !c.soon {
				same(t, subs[9].holds(), first)
				time.Sleep(fanout.BaseWithin)
			}
			kinds := map[string]int{}
			for _, s := range subs {
				same(t, s.holds(), second)
				k := s.kinds()
				if len(k) != 1 {
					t.Errorf("%s: updates were %v", c.name, k)
				}
				kinds[k[0]]++
			}
			if kinds[c.kind] != 10 {
				t.Errorf("%s: sent %v", c.name, kinds)
			}
			if asked := f.bases(); len(asked) != 1 || asked[0].Generation != int64(first.Generation()) || asked[0].Checksum != first.Checksum() {
				t.Errorf("%s: asked for %v", c.name, asked)
			}
			// What follows goes its usual way.
			third := after(t, second, 5)
			f.set(third)
			for _, s := range subs {
				same(t, s.holds(), third)
				if k := s.kinds(); !slices.Equal(k[1:], []string{fanout.KindDelta}) {
					t.Errorf("%s: updates were %v", c.name, k)
				}
			}
		})
	}
}

// Who fetches an older generation by its number gets it from the assigner, as a
// slicelet in consistent mode does that has no Backup Distributor to ask.
func TestFetchGoesUpstream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork()
		f := n.assigner(t, "a1", assigner1)
		first := firstOf(t, testJob, testStore, baseGen, 200)
		second := after(t, first, 5)
		f.past = map[int64]*assignment.Assignment{int64(first.Generation()): first}
		f.set(second)
		w := newWorld(t, n, assigner1)
		fetch := func(g assignment.Generation) (*assignment.Assignment, error) {
			stream, err := slicerv1.NewSubscriberServiceClient(w.cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: testJob, Generation: int64(g)})
			if err != nil {
				return nil, err
			}
			var pieces wire.Assembler
			for {
				m, err := stream.Recv()
				switch {
				case err != nil:
					return nil, err
				case m.GetChunk() != nil:
					if err := pieces.Add(m.GetChunk()); err != nil {
						return nil, err
					}
				case m.GetTrailer() != nil:
					return pieces.Finish(m.GetTrailer(), nil)
				}
			}
		}
		for range 2 {
			if a, err := fetch(first.Generation()); err != nil || a.Checksum() != first.Checksum() {
				t.Errorf("the older one: %v", err)
			}
		}
		began := time.Now()
		if _, err := fetch(first.Generation() - 1); status.Code(err) != codes.NotFound || time.Since(began) >= fanout.BaseWithin {
			t.Errorf("one that is kept nowhere: %v after %s", err, time.Since(began))
		}
		if _, err := fetch(second.Generation() + 1); status.Code(err) != codes.NotFound {
			t.Errorf("one that is not there yet: %v", err)
		}
		if asked := f.bases(); len(asked) != 2 || asked[0].Checksum != 0 || asked[0].StoreId != testStore {
			t.Errorf("asked for %v", asked)
		}
	})
}
