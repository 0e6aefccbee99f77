package slicelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// journal is a listener that writes down changes: the generation, then for each
// quarter + or - and after it who else owned it and who else owns it.
type journal struct {
	gate  chan struct{}
	lines []string
}

func (j *journal) SlicesChanged(_ context.Context, c Change) {
	if j.gate != nil {
		<-j.gate
	}
	j.lines = append(j.lines, fmt.Sprint(c.Generation)+quartersOf("+", c.Arrived)+quartersOf("-", c.Departed))
}

func quartersOf(sign string, rs []Range) (text string) {
	names := func(ts []assignment.Task) (s string) {
		for _, t := range ts {
			s += t.Name[:1]
		}
		return s
	}
	for i, k := range assignment.Equal(4) {
		for _, r := range rs {
			if r.Contains(k) {
				text += fmt.Sprintf(" %s%d %s>%s", sign, i, names(r.From), names(r.To))
			}
		}
	}
	return text
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(j.lines, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(j.lines, "\n"), strings.Join(want, "\n"))
	}
	j.lines = nil
}

// owned makes an assignment of four slices, whose owners are the first letters of
// me, other and third.
func (c *cluster) owned(gen assignment.Generation, owners ...string) {
	c.t.Helper()
	self, err := wire.TaskFromProto(c.me)
	if err != nil {
		c.t.Fatal(err)
	}
	var place assignment.Placement
	for i, start := range assignment.Equal(4) {
		var pos []uint32
		for _, o := range owners[i] {
			pos = append(pos, uint32(strings.IndexRune("mot", o)))
		}
		place.Add(start, pos...)
	}
	tasks := []assignment.Task{self, subscribertest.Task("other", 1), subscribertest.Task("third", 2)}
	c.last, err = assignment.Successor(c.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, tasks, place)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server.Put(c.last)
	synctest.Wait()
}

func TestChangeNamesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := newCluster(t, nil), &journal{}
		defer c.stop()
		c.s.Listen(j)
		c.owned(1, "m", "m", "o", "t")
		j.expect(t, "1 +0 > +1 >") // nothing is known of the time before
		c.owned(2, "o", "t", "m", "m")
		j.expect(t, "2 +2 o> +3 t> -0 >o -1 >t")
		c.owned(3, "ot", "mt", "mo", "o")
		j.expect(t, "3 +1 t>t -3 >o")
		c.owned(4, "o", "ot", "mot", "mo")
		j.expect(t, "4 +3 o>o -1 t>ot")
		c.owned(5, "ot", "t", "mo", "m") // others come and go
		j.expect(t)
		c.owned(6, "m", "m", "o", "o")
		j.expect(t, "6 +0 ot> +1 t> -2 o>o -3 >o")
	})
}

// A busy listener is told from which task keys have come last, not which owned them when
// it was told before.
func TestMergedChangeNamesTheLastOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := newCluster(t, nil), &journal{gate: make(chan struct{})}
		defer c.stop()
		c.s.Listen(j)
		c.owned(1, "m", "o", "o", "m")
		c.owned(2, "m", "t", "o", "o") // 3 goes to other
		c.owned(3, "t", "m", "m", "t") // 0 goes, 1 comes from third, 2 from other; 3 goes on to third
		c.owned(4, "m", "m", "o", "t") // 0 is back, 2 has come and gone
		close(j.gate)
		j.expect(t, "1 +0 > +3 >", "4 +0 t> +1 t> -0 > -3 >t")
	})
}

// Where generations were skipped, the others are those of the last one held.
func TestSkippedGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := newCluster(t, nil), &journal{}
		c.s.Listen(j)
		c.owned(1, "m", "o", "o", "o")
		c.server.Stop()
		c.owned(2, "m", "t", "t", "o")
		c.server = startServer(c.net)
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
		c.owned(3, "t", "m", "t", "m")
		for c.s.Assignment().Generation() != 3 {
			<-c.s.sub.StateChanged()
		}
		j.expect(t, "1 +0 >", "3 +1 o> +3 o> -0 >t")
		c.stop()
	})
}

// In consistent mode keys depart when the bridge is held, and arrive when the guard
// has moved: the others are those of its two sides, whatever is distributed already.
func TestConsistentChangeNamesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b", "c")
		defer r.stop()
		var js []*journal
		for _, m := range r.members {
			j := &journal{}
			m.s.Listen(j)
			js = append(js, j)
		}
		r.put("aabb")
		r.advance()
		js[0].expect(t, "10 +0 > +1 >")
		js[1].expect(t, "10 +2 > +3 >")
		js[2].expect(t)
		r.put("cbbb")
		js[2].expect(t) // distributed, not in force
		r.advance()
		js[0].expect(t, "20 -0 >c -1 >b")
		js[1].expect(t, "20 +1 a>")
		js[2].expect(t, "20 +0 a>")
		// Keys that a lost lease takes away go to no task, and come back from none.
		lost := r.members[2]
		lost.line.off.Store(true)
		lost.skew.Add(int64(ttl))
		time.Sleep(2 * ttl)
		lost.line.off.Store(false)
		time.Sleep(2 * ttl)
		js[2].expect(t, "20 -0 >", "20 +0 >")
	})
}
