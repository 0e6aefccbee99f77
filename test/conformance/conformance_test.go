package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/conformance/planted"
	"github.com/slicer-project/slicer/test/conformance/suite"
)

var (
	every = flag.Bool("every", false, "run all checks against each planted fault, and not only those that are to find it")
	slow  = flag.Bool("slow", false, "run the checks that take longer than ten seconds, too")
)

// patience is how long what has to happen may take.
const patience = 10 * time.Second

func config(t *testing.T, role suite.Role, args ...string) suite.Config {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return suite.Config{Role: role, Command: append([]string{self}, args...), Patience: patience, Parallel: 8}
}

func checksOf(role suite.Role) []suite.Check {
	return slices.DeleteFunc(suite.Checks(role), func(c suite.Check) bool { return c.Slow && !*slow })
}

// logTrace shows what has led to a result.
func logTrace(t *testing.T, r suite.Result) { t.Log(strings.Join(r.Trace, "\n")) }

// TestOurs runs all checks against this repository's slicelet and clerk, which have everything.
func TestOurs(t *testing.T) {
	for _, role := range []suite.Role{suite.Slicelet, suite.Clerk} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			suite.Run(config(t, role, "driver", string(role)), checksOf(role), func(r suite.Result) {
				if r.Outcome != suite.Passed {
					t.Error(r.Line())
					logTrace(t, r)
				}
			})
		})
	}
}

// TestSmall runs them against an implementation that has not what is optional.
func TestSmall(t *testing.T) {
	for _, role := range []suite.Role{suite.Slicelet, suite.Clerk} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			optional := []string{"cache-file", "starting", "changes"}
			suite.Run(config(t, role, "planted", string(role)), checksOf(role), func(r suite.Result) {
				want := suite.Passed
				if slices.Contains(optional, strings.TrimPrefix(r.Check, string(role)+"/")) {
					want = suite.Skipped
				}
				if r.Outcome != want {
					t.Errorf("want %s: %s", want, r.Line())
					logTrace(t, r)
				}
			})
		})
	}
}

// TestConvicts plants each fault, and expects it to be found by the checks that are about it,
// and, with -every, by no other.
func TestConvicts(t *testing.T) {
	for _, role := range []suite.Role{suite.Slicelet, suite.Clerk} {
		faults := planted.Faults(string(role))
		if len(faults) < 10 {
			t.Errorf("%d faults of a %s", len(faults), role)
		}
		for _, f := range faults {
			t.Run(string(role)+"/"+f.Name, func(t *testing.T) {
				t.Parallel()
				checks := slices.DeleteFunc(checksOf(role), func(c suite.Check) bool { return !*every && !slices.Contains(f.Checks, c.Name) })
				var found []string
				c := config(t, role, "planted", string(role), f.Name)
				c.Patience = patience / 2
				suite.Run(c, checks, func(r suite.Result) {
					if r.Outcome == suite.Passed || r.Outcome == suite.Skipped {
						return
					}
					found = append(found, strings.TrimPrefix(r.Check, string(role)+"/"))
					t.Log(r.Line())
				})
				if slices.Sort(found); !slices.Equal(found, slices.Sorted(slices.Values(f.Checks))) {
					t.Errorf("%s: found by %q, want %q", f.Text, found, f.Checks)
				}
			})
		}
	}
}
