// Package waittest is for tests that wait for real time: it runs them side by side, and waits for
// what is to become so while something goes on.
package waittest

import (
	"flag"
	"strconv"
	"sync"
	"testing"
	"time"
)

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
