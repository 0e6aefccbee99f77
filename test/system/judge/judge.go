// Package judge says after a run whether consistent mode kept its promise: of facts about
// which owner believed in which key when, that no two owners overlap and that later
// owners have higher tokens; of what clients did to registers that owners kept in memory,
// that it is linearizable.
//
// Its test runs real processes on a three-process etcd, kills, stops and cuts
// them off from one another while assignments change all the time, and judges what they wrote
// down. The same judge must convict slicelets that do not look at their lease's
// deadline, and a store that does not look at tokens.
//
//	go test ./test/system/judge                        # half a minute, needs only Go
//	go test -tags system ./test/system/judge -run System -judge.duration 10m -judge.seed 1 -timeout 30m
//
// The second one needs root and iproute2: each process lives in a network
// namespace of its own, and is cut off by taking its link out of the bridge. On the same
// processes, without relays or namespaces between them, more is measured, which
// wants a machine of its own:
//
//	go test -tags system ./test/system/judge -run 'Availability|Recalls|SlicerDead' -v -timeout 30m
//
// That is the share of calls that are served within 250 ms while assignments
// change, with the bridge and without it (Slicer paper, section 5), when all is well and
// when slicelets' way to etcd stands still now and then; how
// long recalls last; that calls go on when all of Slicer is dead; and
// that all slicelets stop within their lease time when etcd is.
package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slicer-project/slicer/test/system/judge/history"
)

// Verdict is what a history proves.
type Verdict struct {
	Overlaps    []Conflict
	Regressions []Conflict
	Forks       []string
	// Illegal are registers whose operations no order explains, Undecided those for
	// which that could not be found out in time.
	Illegal, Undecided []string

	Facts, Checks, Owners, Keys, Ops, Unknown, Registers int
}

// Judge judges. limit bounds the search for orders of the registers' operations.
func Judge(h *history.History, limit time.Duration) (Verdict, error) {
	v := Verdict{Overlaps: Overlaps(h.Facts), Regressions: Regressions(h.Facts), Forks: Forks(h.Ops),
		Facts: len(h.Facts), Checks: h.Checks, Ops: len(h.Ops)}
	owners, keys := map[string]bool{}, map[string]bool{}
	for _, f := range h.Facts {
		owners[f.Owner], keys[f.Key] = true, true
	}
	v.Owners, v.Keys = len(owners), len(keys)
	for _, o := range h.Ops {
		if o.Unknown {
			v.Unknown++
		}
	}
	results, err := Registers(h.Ops, limit)
	if err != nil {
		return v, err
	}
	v.Registers = len(results)
	for key, r := range results {
		switch r {
		case porcupine.Illegal:
			v.Illegal = append(v.Illegal, key)
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided, key)
		}
	}
	slices.Sort(v.Illegal)
	slices.Sort(v.Undecided)
	return v, nil
}

// Err is nil if all is proven well.
func (v Verdict) Err() error {
	var bad []string
	add := func(n int, what string, example any) {
		if n > 0 {
			bad = append(bad, fmt.Sprintf("%d %s, such as %v", n, what, example))
		}
	}
	add(len(v.Overlaps), "overlapping beliefs", head(v.Overlaps))
	add(len(v.Regressions), "tokens that go backwards", head(v.Regressions))
	add(len(v.Illegal), "registers that are not linearizable", head(v.Illegal))
	add(len(v.Forks), "impossible answers", head(v.Forks))
	add(len(v.Undecided), "registers undecided", head(v.Undecided))
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(bad, "; "))
}

func head[T any](s []T) (first T) {
	if len(s) > 0 {
		first = s[0]
	}
	return first
}

func (v Verdict) String() string {
	return fmt.Sprintf("%d overlaps, %d regressions of tokens, %d of %d registers not linearizable (%d undecided); %d checks said yes and make %d facts about %d keys and %d owners; %d operations, %d of them without an answer",
		len(v.Overlaps), len(v.Regressions), len(v.Illegal), v.Registers, len(v.Undecided), v.Checks, v.Facts, v.Keys, v.Owners, v.Ops, v.Unknown)
}
