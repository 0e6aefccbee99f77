// Package waittest runs tests that wait for real time side by side.
package waittest

import (
	"flag"
	"strconv"
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
