package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/test/conformance/planted"
	"github.com/slicer-project/slicer/test/conformance/suite"
)

var (
	every = flag.String("every", "^$", "run all checks against the planted faults that match this regular `expression`, and not only those that are to find it")
	slow  = flag.Bool("slow", false, "run the checks that take longer than ten seconds, too")
)

// patience is how long what has to happen may take, and hope the same where a fault is planted, by
// which much does not happen.
const (
	patience = 30 * time.Second
	hope     = 5 * time.Second
)

var roles = []suite.Role{suite.Slicelet, suite.Clerk}

// run runs checks, and returns their results in order. Most wait for something most of the time.
func (s subject) run(t *testing.T, checks []suite.Check) (results []suite.Result) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := suite.Config{Role: s.role, Command: append([]string{self}, s.args...), Patience: s.patience, Parallel: 16}
	suite.Run(c, checks, func(r suite.Result) {
		r.Check = strings.TrimPrefix(r.Check, string(s.role)+"/")
		results = append(results, r)
	})
	return results
}

// subject is an implementation.
type subject struct {
	role     suite.Role
	args     []string // of its driver
	patience time.Duration
}

func checksOf(role suite.Role) []suite.Check {
	return slices.DeleteFunc(suite.Checks(role), func(c suite.Check) bool { return c.Slow && !*slow })
}

// wantPassed expects all checks to be passed, but for those that an implementation has not what
// they need for.
func wantPassed(t *testing.T, s subject, without ...string) {
	checks := checksOf(s.role)
	for tries := 1; len(checks) > 0; tries++ {
		stop := waittest.Starving()
		results := s.run(t, checks)
		starved := stop()
		var again []suite.Check
		for i, r := range results {
			want := suite.Passed
			if slices.Contains(without, r.Check) {
				want = suite.Skipped
			}
			switch text := fmt.Sprintf("want %s: %s\n%s", want, r.Line(), strings.Join(r.Trace, "\n")); {
			case r.Outcome == want:
			case starved > tooLong && tries < 5: // it measures a program by the clock
				t.Logf("once more, since the machine did not run this for %s: %s", starved, text)
				again = append(again, checks[i])
			default:
				t.Error(text)
			}
		}
		checks = again
	}
}

// tooLong is for how long a machine may keep checks from running, of which the most exact count
// tenths of a second.
const tooLong = 100 * time.Millisecond

// TestOurs runs all checks against this repository's slicelet and clerk, which have everything.
func TestOurs(t *testing.T) {
	t.Parallel()
	for _, role := range roles {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			wantPassed(t, subject{role, []string{"driver", string(role)}, patience})
		})
	}
}

// TestSmall runs them against an implementation that has not what is optional.
func TestSmall(t *testing.T) {
	t.Parallel()
	for _, role := range roles {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			wantPassed(t, subject{role, []string{"planted", string(role)}, patience}, "cache-file", "starting", "changes")
		})
	}
}

// TestConvicts plants each fault, and expects it to be found by the checks that are about it,
// and, of all checks with -every, by no other than those that cannot do without what is wrong.
func TestConvicts(t *testing.T) {
	match, err := regexp.Compile(*every)
	if err != nil {
		t.Fatal(err)
	}
	turns := make(chan struct{}, 32) // each waits for what does not come, in a process of its own
	if *every != "^$" {
		turns = make(chan struct{}, 2)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, role := range roles {
		faults := planted.Faults(string(role))
		if len(faults) < 10 {
			t.Errorf("%d faults of a %s", len(faults), role)
		}
		for _, f := range faults {
			s := subject{role, []string{"planted", string(role), f.Name}, hope}
			checks := checksOf(role)
			if match.MatchString(f.Name) {
				s.patience = patience / 2
			} else {
				checks = slices.DeleteFunc(checks, func(c suite.Check) bool { return !slices.Contains(f.Checks, c.Name) })
			}
			if *every != "^$" && !match.MatchString(f.Name) {
				continue
			}
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				convict(t, s, f, checks)
			})
		}
	}
}

func convict(t *testing.T, s subject, f planted.Fault, checks []suite.Check) {
	found := make(map[string]bool)
	for _, r := range s.run(t, checks) {
		if r.Outcome == suite.Passed || r.Outcome == suite.Skipped {
			continue
		}
		found[r.Check] = true
		t.Logf("%s: %s", f.Name, r.Line())
		if !slices.Contains(f.Checks, r.Check) && !slices.Contains(f.Also, r.Check) && !slices.Contains(f.Also, planted.All) {
			t.Errorf("%s %s, which %s: found by %s\n%s", s.role, f.Name, f.Text, r.Check, strings.Join(r.Trace, "\n"))
		}
	}
	for _, c := range f.Checks {
		if !found[c] {
			t.Errorf("%s %s, which %s: not found by %s", s.role, f.Name, f.Text, c)
		}
	}
}
