package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slicer-project/slicer/test/system/judge/history"
)

// Conflict is two facts that cannot both be if the protocol holds.
type Conflict struct {
	What string
	A, B history.Fact
}

func (c Conflict) String() string {
	return fmt.Sprintf("key %s: %s: %s, %s", c.A.Key, c.What, describe(c.A), describe(c.B))
}

func describe(f history.Fact) string {
	how := "at some moment"
	if f.Throughout {
		how = "throughout"
	}
	return fmt.Sprintf("%s with token %d %s from %s to %s", f.Owner, f.Token, how, f.Began, f.Ended)
}

// byKey sorts the facts out, each key's in order of their beginning; at equal
// times first those about a moment, for which of the two came first cannot be told.
func byKey(facts []history.Fact) (keys []string, of map[string][]history.Fact) {
	of = map[string][]history.Fact{}
	for _, f := range facts {
		of[f.Key] = append(of[f.Key], f)
	}
	for key, fs := range of {
		keys = append(keys, key)
		slices.SortFunc(fs, func(a, b history.Fact) int {
			return cmp.Or(cmp.Compare(a.Began, b.Began), order(a.Throughout, b.Throughout), cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Owner, b.Owner))
		})
	}
	slices.Sort(keys)
	return keys, of
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Overlaps returns, for each key, facts that prove that two owners believed in
// it at one moment; if there are any in a key it returns at least one. Each pair is
// proof: of a belief at some moment nothing is assumed but that it lies between
// its bounds.
func Overlaps(facts []history.Fact) (found []Conflict) {
	keys, of := byKey(facts)
	for _, key := range keys {
		// Of what has begun and holds throughout: the longest, and the longest of
		// another owner.
		var first, second history.Fact
		for _, f := range of[key] {
			with := first
			if with.Owner == f.Owner {
				with = second
			}
			if f.Throughout && f.Began < with.Ended || !f.Throughout && f.Ended < with.Ended {
				found = append(found, Conflict{"two owners at one moment", with, f})
			}
			if f.Throughout {
				switch {
				case f.Owner == first.Owner:
					if f.Ended > first.Ended {
						first = f
					}
				case f.Ended > first.Ended:
					first, second = f, first
				case f.Ended > second.Ended:
					second = f
				}
			}
		}
	}
	return found
}

// Regressions returns facts in which a later owner of a key has a token that is
// not higher than an earlier one's.
func Regressions(facts []history.Fact) (found []Conflict) {
	keys, of := byKey(facts)
	for _, key := range keys {
		begins := slices.DeleteFunc(slices.Clone(of[key]), func(f history.Fact) bool { return f.Token == 0 })
		ends := slices.Clone(begins)
		slices.SortFunc(ends, func(a, b history.Fact) int { return cmp.Compare(a.Ended, b.Ended) })
		// Of what has ended: the highest token, and the highest of another owner.
		var first, second history.Fact
		for _, f := range begins {
			for len(ends) > 0 && ends[0].Ended < f.Began {
				e := ends[0]
				ends = ends[1:]
				switch {
				case e.Owner == first.Owner:
					if e.Token > first.Token {
						first = e
					}
				case e.Token > first.Token:
					first, second = e, first
				case e.Token > second.Token:
					second = e
				}
			}
			with := first
			if with.Owner == f.Owner {
				with = second
			}
			if with.Owner != "" && f.Token <= with.Token {
				found = append(found, Conflict{"a later owner's token is not higher", with, f})
			}
		}
	}
	return found
}
