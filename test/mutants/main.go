// Mutants changes the rules of consistent mode, and of what is done when there are too many
// requests, one at a time, and runs the tests that have to notice: a comparison left out, a wait cut short, a clock that is not
// the right one, two steps in the wrong order. A mutant that no test notices is a
// rule that nothing holds.
//
//	go run ./test/mutants                 # all of them, some twenty minutes
//	go run ./test/mutants -run deadline   # those whose name matches
//	go run ./test/mutants -json           # a line of JSON for each
//
// The files themselves stay as they are: the changed ones are given to the
// compiler as an overlay. A mutant is killed when a test fails with it, fails with it
// again, and passes without it. The tests are those of lease and its stores, slicelet,
// the assigner, loadbalance/overload, distributor/fanout, the subscribers' protocol,
// test/system/consistent and test/cluster, as far as they link what is
// changed. test/model is not among them: its tests give a model in Promela to Spin and
// read no Go, so that no mutant changes what they find. The exit code is 1 if more
// survive than -survivors allows.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	match := flag.String("run", "", "regular expression that a mutant's name must match")
	within := flag.String("packages", "", "regular expression that a package must match for its tests to be run")
	asJSON := flag.Bool("json", false, "print a line of JSON for each mutant")
	allowed := flag.Int("survivors", 2, "how many may survive")
	flag.Parse()
	name, err := regexp.Compile(*match)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	pkg, err := regexp.Compile(*within)
	if err != nil {
		return fmt.Errorf("-packages: %w", err)
	}
	suites = slices.DeleteFunc(suites, func(s suite) bool { return !pkg.MatchString(s.pkg) })
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("the module's folder: %w", err)
	}
	root := strings.TrimSpace(string(out))
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := newRunner(root, dir)
	tried, survived, broken := 0, 0, 0
	for _, m := range mutants {
		if !name.MatchString(m.Name) {
			continue
		}
		began := time.Now()
		tried++
		o, err := m.try(r)
		if err != nil {
			broken++
			fmt.Fprintln(os.Stderr, "mutants:", err)
			continue
		}
		if !o.Killed {
			survived++
		}
		if *asJSON {
			line, err := json.Marshal(o)
			if err != nil {
				return err
			}
			fmt.Println(string(line))
			continue
		}
		fmt.Printf("%-8s %-46s %5.0fs  %s\n", verdict(o), o.Mutant, time.Since(began).Seconds(), by(o))
	}
	if tried == 0 {
		return fmt.Errorf("-run: %q matches no mutant", *match)
	}
	fmt.Fprintf(os.Stderr, "%d mutants, %d survive\n", tried, survived)
	if broken > 0 {
		return fmt.Errorf("%d mutants could not be tried", broken)
	}
	if survived > *allowed {
		return fmt.Errorf("%d mutants survive, at most %d may", survived, *allowed)
	}
	return nil
}

func verdict(o outcome) string {
	if o.Killed {
		return "killed"
	}
	return "SURVIVES"
}

func by(o outcome) string {
	if !o.Killed {
		return o.Rule + "; " + o.Why
	}
	return o.Package + " " + strings.Join(o.Tests[:min(len(o.Tests), 3)], ", ")
}
