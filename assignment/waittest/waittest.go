// Package waittest is for tests that wait for real time: it runs them side by side, bounds what
// they wait for, and waits for what is to become so while something goes on.
package waittest

import (
	"errors"
	"flag"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Patience bounds waits for what has to happen; nothing is to be asserted on it. A machine
// that is starved may not run a process for half a minute.
const Patience = 3 * time.Minute

// Answer calls again, for up to Patience, while the error matches one that says that there was
// no answer in time. It returns what the last call has returned.
func Answer[T any](none error, call func() (T, error)) (x T, err error) {
	for end := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		if x, err = call(); !errors.Is(err, none) || time.Now().After(end) {
			return x, err
		}
	}
}

// Starving measures, until stop is called, for how long at most the machine has kept this process
// from running. A test that measures another process by the clock knows by it when its measurement
// says nothing.
func Starving() (stop func() time.Duration) {
	const every = 10 * time.Millisecond
	over, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		tick := time.NewTimer(every)
		for last := time.Now(); ; {
			select {
			case <-tick.C:
			case <-over:
				longest <- max(most, time.Since(last)-every)
				return
			}
			now := time.Now()
			most, last = max(most, now.Sub(last)-every), now
			tick.Reset(every)
		}
	}()
	return func() time.Duration { close(over); return <-longest }
}

// atOnce is how many tests wait at once. Each starts a few servers, so that more would
// make one another slow.
const atOnce = 8

// SideBySide is for a TestMain, before it runs the tests: at least 8 of the parallel
// tests of this binary run at once, whatever the number of processors, as those tests
// wait rather than compute. The flag -parallel, if given, stands.
func SideBySide() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	f := flag.Lookup("test.parallel")
	if n, err := strconv.Atoi(f.Value.String()); given || err != nil || n >= atOnce {
		return
	}
	if err := flag.Set(f.Name, strconv.Itoa(atOnce)); err != nil {
		panic(err)
	}
}

// Eventually waits until something is so, and ends the test if it is not within the limit.
func Eventually(tb testing.TB, limit time.Duration, what string, so func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(limit); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("in vain: " + what)
		}
	}
}

// Repeat has so many goroutines do something again and again, with their number and how often they
// have done it, until stop is called, which waits for them.
func Repeat(goroutines int, do func(n, i int)) (stop func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	for n := range goroutines {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					do(n, i)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		all.Wait()
	})
}
