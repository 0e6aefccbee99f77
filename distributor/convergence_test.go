package distributor

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// naive says how far subscribers are, from a plain list of them.
func naive(all map[uint64]member, newest mark) progressView {
	type late struct {
		gen  assignment.Generation
		name string
	}
	v := progressView{min: newest.gen}
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
		g := m.held.gen
		if newest.gen != 0 && m.held.store != newest.store {
			g = 0
		}
		if first || g < v.min {
			v.min, first = g, false
		}
		if g < newest.gen {
			behind = append(behind, late{g, m.name})
		}
	}
	slices.SortFunc(behind, func(a, b late) int { return cmp.Or(cmp.Compare(a.gen, b.gen), cmp.Compare(a.name, b.name)) })
	v.behind = len(behind)
	for _, l := range behind[:min(len(behind), maxStragglers)] {
		v.stragglers = append(v.stragglers, l.name)
	}
	return v
}

func TestConvergenceAgainstPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConvergence()
		plain := make(map[uint64]member)
		marks := rapid.Custom(func(t *rapid.T) mark {
			g := assignment.Generation(rapid.Int64Range(0, 5).Draw(t, "gen"))
			if g == 0 {
				return mark{}
			}
			return mark{rapid.Uint64Range(1, 2).Draw(t, "store"), g}
		})
		ids := rapid.Uint64Range(1, 40)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				id, held := ids.Draw(t, "id"), marks.Draw(t, "held")
				role := slicerv1.Role(rapid.IntRange(1, 3).Draw(t, "role"))
				name := fmt.Sprint("n", id%7)
				c.join(id, role, name, held)
				plain[id] = member{role, name, held}
			},
			"hold": func(t *rapid.T) {
				id, held := ids.Draw(t, "id"), marks.Draw(t, "held")
				m, there := plain[id]
				if changed := c.hold(id, held); changed != (there && m.held != held) {
					t.Fatalf("hold says %v", changed)
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
			},
			"": func(t *rapid.T) {
				newest := marks.Draw(t, "newest")
				got, want := c.view(newest), naive(plain, newest)
				if !got.equal(want) {
					t.Fatalf("newest %v:\ngot  %+v\nwant %+v", newest, got, want)
				}
				if got.empty() != (want.clerks+want.slicelets == 0) {
					t.Fatalf("empty is %v", got.empty())
				}
			},
		})
	})
}

func TestConvergenceOfAnEmptyJob(t *testing.T) {
	c := newConvergence()
	c.join(1, slicerv1.Role_ROLE_OBSERVER, "o", mark{})
	m := c.view(mark{1, 9}).toProto("x")
	if !m.Empty || m.MinGeneration != 9 || len(m.Stragglers) != 0 {
		t.Errorf("an observer is waited for: %v", m)
	}
}
