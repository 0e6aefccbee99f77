// Package seedtest gives random tests their seed: the same one in every run, so
// that a change is judged by its own doing, and another one on request. It also says
// how many cases to try. Properties checked with rapid follow where it is linked.
package seedtest

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	_ "pgregory.net/rapid" // for its flag
)

// Env is the environment variable that names the seed: 1 to 2^64-1, or "random",
// which draws one for each test.
const Env = "SLICER_SEED"

func init() {
	if v := os.Getenv(Env); v != "random" { // as rapid does by itself
		if err := flag.Set("rapid.seed", cmp.Or(v, "1")); err != nil {
			panic(Env + ": " + err.Error())
		}
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(Cases(100))); err != nil {
		panic(err)
	}
}

// Cases is how many of n cases a test is to try that tries them one after the other:
// all, but a fifth (of 1 or more, at least 1) under the race detector, which makes
// each some ten times as slow and looks at what goroutines do, not at results.
func Cases(n int) int {
	if Detector {
		return (n + 4) / 5
	}
	return n
}

// Seed returns the test's seed and logs how to have it again. Without the variable
// it is 1; a value that is not allowed ends the test.
func Seed(t testing.TB) uint64 {
	t.Helper()
	var seed uint64
	switch v := os.Getenv(Env); v {
	case "":
		seed = 1
	case "random":
		seed = rand.Uint64()
	default:
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil || seed == 0 {
			t.Fatalf("%s is %q; allowed: 1 to 2^64-1, or random", Env, v)
		}
	}
	t.Logf("%s=%d", Env, seed)
	return seed
}
