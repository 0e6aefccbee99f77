package judge

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slicer-project/slicer/test/judge/history"
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

// sift leaves out of one key's operations what says nothing, and bounds what was
// not answered. Values are unique, so a write of unknown outcome whose value
// nobody got can be taken for one that comes last, and one whose value
// somebody got was carried out before that was returned.
func sift(ops []history.Op) []porcupine.Operation {
	returned := map[string]time.Duration{} // the first return of a value
	for _, o := range ops {
		if at, ok := returned[o.Got]; !o.Unknown && (!ok || o.Return < at) {
			returned[o.Got] = o.Return
		}
	}
	var out []porcupine.Operation
	for i, o := range ops {
		end := o.Return
		if o.Unknown {
			at, ok := returned[o.Arg]
			if !ok || !o.Write {
				continue
			}
			// What was returned before it was called is for the checker to find.
			end = max(at, o.Call)
		}
		out = append(out, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.Call), Return: int64(end)})
	}
	return out
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
			r := porcupine.Unknown
			if left := time.Until(deadline); left > 0 {
				r = porcupine.CheckOperationsTimeout(register, sift(list), left)
			}
			mu.Lock()
			defer mu.Unlock()
			results[key] = r
		})
	}
	wg.Wait()
	return results, nil
}

// Forks finds, without searching, what no order can explain: two operations that
// both replaced the same value, and values that nobody has written. It names the culprits when
// Registers only says which key.
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
			found = append(found, fmt.Sprintf("register %s: %s got %q, which nobody wrote", o.Key, o.Client, o.Got))
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
