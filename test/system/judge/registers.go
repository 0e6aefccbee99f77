package judge

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slicer-project/slicer/test/system/judge/history"
)

// register is the sequential specification: a value that reads return and
// writes replace, returning what was there before. It begins empty.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		o := input.(history.Op)
		if !o.Unknown && o.Got != state.(string) {
			return false, state
		}
		if o.Write {
			return true, o.Arg
		}
		return true, state
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(history.Op)
		return fmt.Sprintf("%s write=%t %q -> %q unknown=%t", o.Key, o.Write, o.Arg, o.Got, o.Unknown)
	},
}

// sift leaves out of one key's operations what says nothing, and bounds what was not
// answered. Values are unique, so a write of unknown outcome whose value was never read
// can be taken for one that comes last, and one whose value was read was carried out
// before that was returned.
func sift(ops []history.Op) (kept []history.Op) {
	returned := map[string]time.Duration{} // the first return of a value
	for _, o := range ops {
		if at, ok := returned[o.Got]; !o.Unknown && (!ok || o.Return < at) {
			returned[o.Got] = o.Return
		}
	}
	for _, o := range ops {
		if o.Unknown {
			at, ok := returned[o.Arg]
			if !ok || !o.Write {
				continue
			}
			// What was returned before it was called is for the checker to find.
			o.Return = max(at, o.Call)
		}
		kept = append(kept, o)
	}
	return kept
}

// mostChains is how many writes without an answer there may be for all their orders to be
// tried: 120 orders, of which nearly all are refuted at once.
const mostChains = 5

// orders are all that writes of unknown outcome may have replaced: each what the last of a
// chain of writes wrote, of which each replaced what the one before wrote. Where one of them is
// not known, narrow knows less of what comes after it, and the search may not end. If they are
// too many they stay unknown.
func orders(ops []history.Op) iter.Seq[[]history.Op] {
	var heads []int // of chains
	replacer := map[string]string{}
	for i, o := range ops {
		switch {
		case !o.Write:
		case o.Unknown:
			heads = append(heads, i)
		default:
			replacer[o.Got] = o.Arg
		}
	}
	if len(heads) > mostChains {
		heads = nil
	}
	last := func(value string) string {
		for range ops { // what was answered may go round in a circle
			next, ok := replacer[value]
			if !ok {
				break
			}
			value = next
		}
		return value
	}
	return func(yield func([]history.Op) bool) {
		var place func(before string, order []history.Op, left []int) bool
		place = func(before string, order []history.Op, left []int) bool {
			if len(left) == 0 {
				return yield(order)
			}
			for n, i := range left {
				next := slices.Clone(order)
				next[i].Unknown, next[i].Got = false, last(before)
				if !place(ops[i].Arg, next, slices.Delete(slices.Clone(left), n, n+1)) {
					return false
				}
			}
			return true
		}
		place("", ops, heads)
	}
}

// check searches until the deadline for an order of one key's operations that explains them.
func check(ops []history.Op, deadline time.Time) porcupine.CheckResult {
	result := porcupine.Illegal
	for ops := range orders(sift(ops)) {
		left := time.Until(deadline)
		if left <= 0 {
			return porcupine.Unknown
		}
		arranged, possible := arrange(ops)
		if !possible {
			continue
		}
		switch porcupine.CheckOperationsTimeout(register, arranged, left) {
		case porcupine.Ok:
			return porcupine.Ok
		case porcupine.Unknown:
			result = porcupine.Unknown
		}
	}
	return result
}

// arrange makes operations for the search. It returns false if it has found already that no
// order explains them.
func arrange(kept []history.Op) ([]porcupine.Operation, bool) {
	kept = slices.Clone(kept)
	place := narrow(kept)
	times := make([]time.Duration, 0, 2*len(kept))
	for _, o := range kept {
		if o.Return < o.Call {
			return nil, false
		}
		times = append(times, o.Call, o.Return)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	// Ranks stand for times, so that calls at one time can be put in order of place:
	// the search tries them in that order.
	at := func(d time.Duration, n int) int64 {
		rank, _ := slices.BinarySearch(times, d)
		return int64(rank)*int64(len(kept)+1) + int64(n)
	}
	var out []porcupine.Operation
	for i, o := range kept {
		out = append(out, porcupine.Operation{ClientId: i, Input: o, Call: at(o.Call, min(place[i], len(kept))), Return: at(o.Return, len(kept))})
	}
	return out, true
}

// narrow moves calls and returns closer to when the operations can have been carried out,
// which changes no verdict: a read of a value comes after its write, and before the
// operation that replaced it. Without that, the search tries in vain to take writes
// before the reads, called later, of what they replaced: with many at a time, as after a
// standstill, it does not end. An operation that then returns before it is called cannot
// have been. It returns the place of each in an order that agrees with all that.
func narrow(ops []history.Op) (place []int) {
	place = make([]int, len(ops))
	next := 1
	readers, writer, replacer := map[string][]int{}, map[string]int{}, map[string]int{}
	for i, o := range ops {
		if o.Write {
			writer[o.Arg] = i
		}
		switch {
		case o.Unknown:
		case o.Write:
			replacer[o.Got] = i
		default:
			readers[o.Got] = append(readers[o.Got], i)
		}
	}
	// Along each chain of values, from the write of the first to the one that replaced
	// the last.
	for first, o := range ops {
		if !o.Write {
			continue
		}
		if _, ok := writer[o.Got]; ok && !o.Unknown {
			continue // not the first
		}
		chain := []int{first}
		for i, ok := replacer[o.Arg]; ok; i, ok = replacer[ops[i].Arg] {
			chain = append(chain, i)
		}
		for _, i := range narrowChain(ops, chain, readers) {
			place[i] = next
			next++
		}
	}
	return place
}

// narrowChain does so with writes each of which replaced what the one before wrote,
// and returns them and their readers in order.
func narrowChain(ops []history.Op, chain []int, readers map[string][]int) (order []int) {
	first, last := &ops[chain[0]], &ops[chain[len(chain)-1]]
	var before []int // readers of what the first replaced
	if !first.Unknown {
		before = readers[first.Got]
	}
	call := time.Duration(math.MinInt64)
	for n, i := range chain {
		of := before
		if n > 0 {
			of = readers[ops[i].Got]
		}
		for _, r := range of {
			ops[r].Call = max(ops[r].Call, call)
			ops[i].Call = max(ops[i].Call, ops[r].Call)
		}
		ops[i].Call = max(ops[i].Call, call)
		call = ops[i].Call
		order = append(append(order, of...), i)
	}
	for _, r := range readers[last.Arg] {
		ops[r].Call = max(ops[r].Call, call)
	}
	order = append(order, readers[last.Arg]...)
	end := time.Duration(math.MaxInt64)
	for _, i := range slices.Backward(chain) {
		for _, r := range readers[ops[i].Arg] {
			ops[r].Return = min(ops[r].Return, end)
			ops[i].Return = min(ops[i].Return, ops[r].Return)
		}
		ops[i].Return = min(ops[i].Return, end)
		end = ops[i].Return
	}
	for _, r := range before {
		ops[r].Return = min(ops[r].Return, end)
	}
	return order
}

// Registers says of each key whether its operations are linearizable: Ok,
// Illegal, or Unknown if that could not be found out before the limit. Values
// written must be unique; the error says which is not.
func Registers(ops []history.Op, limit time.Duration) (map[string]porcupine.CheckResult, error) {
	of := map[string][]history.Op{}
	values := map[string]bool{}
	for _, o := range ops {
		of[o.Key] = append(of[o.Key], o)
		if o.Write {
			if o.Arg == "" || values[o.Arg] {
				return nil, fmt.Errorf("register %s: value %q was written before, or is empty", o.Key, o.Arg)
			}
			values[o.Arg] = true
		}
	}
	deadline := time.Now().Add(limit)
	results := map[string]porcupine.CheckResult{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for key, list := range of {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r := check(list, deadline)
			mu.Lock()
			defer mu.Unlock()
			results[key] = r
		})
	}
	wg.Wait()
	return results, nil
}

// Forks finds, without searching, what no order can explain: two operations that both replaced
// the same value, and values that were never written. It names the culprits when Registers
// only says which key.
func Forks(ops []history.Op) (found []string) {
	type at struct{ key, value string }
	written, replaced := map[at]bool{}, map[at]history.Op{}
	for _, o := range ops {
		if o.Write {
			written[at{o.Key, o.Arg}] = true
		}
	}
	for _, o := range ops {
		if o.Unknown {
			continue
		}
		a := at{o.Key, o.Got}
		if o.Got != "" && !written[a] {
			found = append(found, fmt.Sprintf("register %s: %s got %q, which was never written", o.Key, o.Client, o.Got))
		}
		if !o.Write {
			continue
		}
		if p, ok := replaced[a]; ok {
			found = append(found, fmt.Sprintf("register %s: %q was replaced twice: by %q of %s in %s..%s and by %q of %s in %s..%s",
				o.Key, o.Got, p.Arg, p.Client, p.Call, p.Return, o.Arg, o.Client, o.Call, o.Return))
		}
		replaced[a] = o
	}
	slices.Sort(found)
	return found
}
