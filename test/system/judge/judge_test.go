package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

// conflict says, from the definition, whether two facts prove an overlap.
func conflict(a, b history.Fact) bool {
	if a.Key != b.Key || a.Owner == b.Owner {
		return false
	}
	switch {
	case a.Throughout && b.Throughout:
		return max(a.Began, b.Began) < min(a.Ended, b.Ended)
	case a.Throughout:
		return a.Began < b.Began && b.Ended < a.Ended
	case b.Throughout:
		return b.Began < a.Began && a.Ended < b.Ended
	}
	return false // two moments can always be apart
}

func regression(a, b history.Fact) bool {
	return a.Key == b.Key && a.Owner != b.Owner && a.Token != 0 && b.Token != 0 && a.Ended < b.Began && b.Token <= a.Token
}

func drawFacts(t *rapid.T) []history.Fact {
	var facts []history.Fact
	for range rapid.IntRange(0, 12).Draw(t, "n") {
		f := history.Fact{
			Key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), Owner: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"),
			Token: assignment.Generation(rapid.IntRange(0, 4).Draw(t, "token")),
			Began: time.Duration(rapid.IntRange(0, 30).Draw(t, "began")), Throughout: rapid.Bool().Draw(t, "throughout"),
		}
		f.Ended = f.Began + time.Duration(rapid.IntRange(0, 8).Draw(t, "length"))
		if f.Throughout {
			f.Ended++
		}
		facts = append(facts, f)
	}
	return facts
}

// The sweeps find something in a key exactly if comparing every pair does, and
// whatever they find is such a pair.
func TestSweepsAgainstPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := drawFacts(t)
		for what, c := range map[string]struct {
			found []Conflict
			proof func(a, b history.Fact) bool
		}{"overlap": {Overlaps(facts), conflict}, "regression": {Regressions(facts), regression}} {
			want := map[string]bool{}
			for _, a := range facts {
				for _, b := range facts {
					if c.proof(a, b) {
						want[a.Key] = true
					}
				}
			}
			got := map[string]bool{}
			for _, f := range c.found {
				if !c.proof(f.A, f.B) {
					t.Fatalf("%s: %s is none", what, f)
				}
				got[f.A.Key] = true
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s in keys %v, want %v", what, got, want)
			}
		}
	})
}

// world makes the facts that honest checks of beliefs that follow one another
// give, and adds to one of them time that belongs to the next.
func TestSweepOfATrueWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type reign struct {
			owner    string
			from, to time.Duration
		}
		var reigns []reign
		at := time.Duration(0)
		for i := range rapid.IntRange(2, 8).Draw(t, "reigns") {
			from := at + time.Duration(rapid.IntRange(0, 5).Draw(t, "gap"))
			at = from + time.Duration(rapid.IntRange(10, 50).Draw(t, "length"))
			reigns = append(reigns, reign{string(rune('a' + i)), from, at})
		}
		late := rapid.IntRange(-1, len(reigns)-2).Draw(t, "late") // who goes on believing
		var facts []history.Fact
		for i, r := range reigns {
			to := r.to
			if i == late {
				to = reigns[i+1].to
			}
			// A check's answer is from within it, so a fact may stick out on both sides.
			taken := r.from + time.Duration(rapid.IntRange(0, 3).Draw(t, "taken"))
			last := to - time.Duration(rapid.IntRange(0, 3).Draw(t, "last"))
			slack := func() time.Duration { return time.Duration(rapid.IntRange(0, 9).Draw(t, "slack")) }
			facts = append(facts,
				history.Fact{Key: "k", Owner: r.owner, Token: assignment.Generation(i + 1), Began: taken - min(slack(), taken), Ended: taken},
				history.Fact{Key: "k", Owner: r.owner, Token: assignment.Generation(i + 1), Began: taken, Ended: last, Throughout: true},
				history.Fact{Key: "k", Owner: r.owner, Token: assignment.Generation(i + 1), Began: last, Ended: last + slack()})
		}
		facts = rapid.Permutation(facts).Draw(t, "facts")
		if found := Overlaps(facts); (len(found) > 0) != (late >= 0) {
			t.Fatalf("late %d, found %v", late, found)
		}
		if found := Regressions(facts); late < 0 && len(found) > 0 {
			t.Fatalf("found %v", found)
		}
	})
}

// play makes a history of a true register: operations by several clients take
// effect at a moment of their own; some get no answer, and of those some took effect.
func play(t *rapid.T) []history.Op {
	value, at := "", time.Duration(0)
	var ops []history.Op
	for i := range rapid.IntRange(1, 9).Draw(t, "n") {
		at += time.Duration(rapid.IntRange(1, 5).Draw(t, "gap"))
		o := history.Op{Client: fmt.Sprint("c", i), Key: "r", Write: rapid.Bool().Draw(t, "write"), Got: value,
			Call: at - min(at, time.Duration(rapid.IntRange(0, 12).Draw(t, "before"))), Return: at + time.Duration(rapid.IntRange(0, 12).Draw(t, "after"))}
		carried := true
		if rapid.IntRange(0, 3).Draw(t, "answer") == 0 {
			o.Unknown, o.Got = true, ""
			carried = rapid.Bool().Draw(t, "carried")
		}
		if o.Write {
			o.Arg = fmt.Sprint("v", i)
			if carried {
				value = o.Arg
			}
		}
		ops = append(ops, o)
	}
	return rapid.Permutation(ops).Draw(t, "ops")
}

func verdict(t *rapid.T, ops []history.Op) porcupine.CheckResult {
	r, err := Registers(ops, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return r["r"]
}

func TestTrueRegistersAreLinearizable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := play(t)
		if r := verdict(t, ops); r != porcupine.Ok {
			t.Fatalf("%s: %+v", r, ops)
		}
		if f := Forks(ops); f != nil {
			t.Fatal(f)
		}
	})
}

// What sift leaves out or bounds changes no verdict: the oracle searches with
// every operation, those without an answer open to the end.
func TestSiftAgainstTheWholeSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ops := play(t)
		if rapid.Bool().Draw(t, "spoil") {
			i := rapid.IntRange(0, len(ops)-1).Draw(t, "which")
			ops[i].Got = rapid.SampledFrom([]string{"", "v0", "v1", "v2", "v3"}).Draw(t, "got")
		}
		var whole []porcupine.Operation
		for i, o := range ops {
			end := o.Return
			if o.Unknown {
				end = time.Hour
			}
			whole = append(whole, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.Call), Return: int64(end)})
		}
		want := porcupine.CheckOperationsTimeout(register, whole, 0)
		if got := verdict(t, ops); got != want {
			t.Fatalf("%s, want %s: %+v", got, want, ops)
		}
		if len(Forks(ops)) > 0 && want == porcupine.Ok {
			t.Fatalf("Forks finds %v in what is linearizable", Forks(ops))
		}
	})
}

func TestALostUpdateIsFound(t *testing.T) {
	ops := []history.Op{
		{Client: "a", Key: "r", Write: true, Arg: "v1", Got: "", Call: 1, Return: 2},
		{Client: "a", Key: "r", Write: true, Arg: "v2", Got: "v1", Call: 3, Return: 9},
		{Client: "b", Key: "r", Write: true, Arg: "v3", Got: "v1", Call: 4, Return: 8},
		{Client: "a", Key: "other", Got: "", Call: 1, Return: 2},
	}
	v, err := Judge(&history.History{Ops: ops}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.Illegal, []string{"r"}) || len(v.Forks) != 1 || v.Err() == nil || !strings.Contains(v.Err().Error(), `replaced twice`) {
		t.Errorf("%s: %v", v, v.Err())
	}
	if _, err := Judge(&history.History{Ops: append(ops, ops[0])}, time.Minute); err == nil {
		t.Error("a value that was written twice was not refused")
	}
	if v, err := Judge(&history.History{Ops: ops}, 0); err != nil || len(v.Undecided) != 2 || v.Err() == nil {
		t.Errorf("without time: %s: %v", v, err)
	}
}

// After a standstill many operations are under way at once, and writes were called
// before the reads of what they replaced: the search ends all the same, also if some of
// the writes had no answer.
func TestAStandstillIsDecided(t *testing.T) {
	for _, unanswered := range [][]int{nil, {50}, {20, 40, 60}} {
		var ops []history.Op
		for i := range 100 {
			got := ""
			if i > 0 {
				got = fmt.Sprint("v", i-1)
			}
			w := history.Op{Client: "w", Key: "r", Write: true, Arg: fmt.Sprint("v", i), Got: got, Call: time.Duration(i), Return: 2000}
			if slices.Contains(unanswered, i) {
				w.Unknown, w.Got = true, ""
			}
			ops = append(ops, w)
			for j := range 5 {
				ops = append(ops, history.Op{Client: "r", Key: "r", Got: got, Call: time.Duration(1000 - i - j), Return: 2000})
			}
		}
		for _, want := range []porcupine.CheckResult{porcupine.Ok, porcupine.Illegal} {
			r, err := Registers(ops, time.Minute)
			if err != nil || r["r"] != want {
				t.Errorf("%d writes without an answer: %s, %v, want %s", len(unanswered), r["r"], err, want)
			}
			ops[len(ops)-1].Got = "v3" // called when that may have been replaced, and returned
			ops[len(ops)-1].Call = 1999
			ops[5*6].Return = 1998
		}
	}
}
