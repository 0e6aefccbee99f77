// Package waittest is for tests that wait for real time: it runs them side by side, and bounds
// what they wait for.
package waittest

import (
	"errors"
	"flag"
	"strconv"
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
