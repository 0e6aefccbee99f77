package fanout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// naive says how far subscribers are, from a plain list of them.
func naive(all map[uint64]member, newest Version) summary {
	type late struct {
		gen  assignment.Generation
		name string
	}
	v := summary{min: newest.Gen}
	var behind []late
	first := true
	for _, m := range all {
		switch m.role {
		case slicerv1.Role_ROLE_CLERK:
			v.clerks++
		case slicerv1.Role_ROLE_SLICELET:
			v.slicelets++
		default:
			continue
		}
		g := m.held.Gen
		if newest.Gen != 0 && m.held.Store != newest.Store {
			g = 0
		}
		if first || g < v.min {
			v.min, first = g, false
		}
		if g < newest.Gen {
			behind = append(behind, late{g, m.name})
		}
	}
	v.holders = naiveHolders(all, newest)
	slices.SortFunc(behind, func(a, b late) int { return cmp.Or(cmp.Compare(a.gen, b.gen), cmp.Compare(a.name, b.name)) })
	v.behind = len(behind)
	for _, l := range behind[:min(len(behind), wire.MaxStragglers)] {
		v.stragglers = append(v.stragglers, l.name)
	}
	return v
}

// naiveHolders counts holders, from the same list.
func naiveHolders(all map[uint64]member, newest Version) (out []holders) {
	for _, role := range []slicerv1.Role{slicerv1.Role_ROLE_CLERK, slicerv1.Role_ROLE_SLICELET} {
		n := map[assignment.Generation]int{}
		for _, m := range all {
			if m.role == role {
				n[m.held.under(newest)]++
			}
		}
		gens := slices.Sorted(maps.Keys(n))
		slices.Reverse(gens)
		others := 0
		for i, g := range gens {
			if i < maxHoldings && g != 0 {
				out = append(out, holders{role, g, n[g]})
			} else {
				others += n[g]
			}
		}
		if others > 0 {
			out = append(out, holders{role, 0, others})
		}
	}
	return out
}

func TestConvergenceAgainstPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConvergence()
		plain := make(map[uint64]member)
		now := time.UnixMilli(baseGen)
		written, current := now, Version{Store: 1}
		awaited, times := make(map[uint64]bool), []time.Duration(nil)
		marks := rapid.Custom(func(t *rapid.T) Version {
			g := assignment.Generation(rapid.Int64Range(0, 5).Draw(t, "gen"))
			if g == 0 {
				return Version{}
			}
			return Version{rapid.Uint64Range(1, 2).Draw(t, "store"), g}
		})
		ids := rapid.Uint64Range(1, 40)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				id, held := ids.Draw(t, "id"), marks.Draw(t, "held")
				role := slicerv1.Role(rapid.IntRange(1, 3).Draw(t, "role"))
				name := fmt.Sprint("n", id%7)
				c.join(id, role, name, held)
				plain[id] = member{role: role, name: name, held: held}
				delete(awaited, id)
			},
			"hold": func(t *rapid.T) {
				id, held := ids.Draw(t, "id"), marks.Draw(t, "held")
				m, there := plain[id]
				changed, took, reached := c.hold(now, id, held)
				if changed != (there && m.held != held) {
					t.Fatalf("hold says %v", changed)
				}
				want := there && awaited[id] && held.under(current) >= current.Gen
				if reached != want || reached && took != now.Sub(written) {
					t.Fatalf("reached is %v after %s, want %v after %s", reached, took, want, now.Sub(written))
				}
				if reached {
					delete(awaited, id)
					times = append(times, took)
				}
				if there {
					m.held = held
					plain[id] = m
				}
			},
			"leave": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				c.leave(id)
				delete(plain, id)
				delete(awaited, id)
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			},
			"came": func(t *rapid.T) {
				current, written = Version{current.Store, current.Gen + 1}, now
				c.came(current, written)
				clear(awaited)
				times = nil
				for id, m := range plain {
					awaited[id] = m.role != slicerv1.Role_ROLE_OBSERVER && m.held.under(current) < current.Gen
				}
			},
			"": func(t *rapid.T) {
				newest := marks.Draw(t, "newest")
				got, want := c.summary(newest), naive(plain, newest)
				want.spreads, want.newest = got.spreads, got.newest // checked below
				if !got.equal(want) {
					t.Fatalf("newest %v:\ngot  %+v\nwant %+v", newest, got, want)
				}
				if got.empty() != (want.clerks+want.slicelets == 0) {
					t.Fatalf("empty is %v", got.empty())
				}
				waiting, reached, last := 0, 0, time.Duration(0)
				for r := range got.spreads {
					s := &got.spreads[r]
					waiting, reached, last = waiting+s.waiting, reached+s.reached, max(last, s.last)
					total := 0
					for _, n := range s.counts {
						total += int(n)
					}
					if total != s.reached {
						t.Fatalf("%d are counted of %d", total, s.reached)
					}
				}
				for _, is := range awaited {
					if is {
						waiting--
					}
				}
				if waiting != 0 || reached != len(times) || len(times) > 0 && last != slices.Max(times) {
					t.Fatalf("%d more are waited for, %d have it after at most %s; the times are %v", waiting, reached, last, times)
				}
			},
		})
	})
}

func TestConvergenceOfAnEmptyJob(t *testing.T) {
	c := newConvergence()
	c.join(1, slicerv1.Role_ROLE_OBSERVER, "o", Version{})
	m := c.summary(Version{1, 9}).toProto(time.Now(), "x")
	if !m.Empty || m.MinGeneration != 9 || len(m.Stragglers) != 0 {
		t.Errorf("an observer is waited for: %v", m)
	}
}
