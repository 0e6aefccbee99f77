// Conformance checks a slicelet or a clerk of any language against the protocol: it plays the
// Distributors that the implementation connects to, and says what is wrong. The implementation comes
// with a driver, a small program that does what deploy/docs/CONFORMANCE.md says on its standard input.
//
//	go run ./test/conformance slicelet -- java -cp build Driver    # checks an implementation
//	go run ./test/conformance slicelet -list                        # the checks, and where each is written
//	go run ./test/conformance vectors                               # keys and their slice keys, as JSON
//	go run ./test/conformance clerk                                 # without a command: this repository's own
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/slicer-project/slicer/test/conformance/driver"
	"github.com/slicer-project/slicer/test/conformance/planted"
	"github.com/slicer-project/slicer/test/conformance/suite"
)

// Exit codes.
const (
	exitOK     = 0
	exitFaulty = 1 // the implementation is at fault
	exitUsage  = 2 // the command line is
	exitError  = 3 // the kit or the driver could not do its work
)

const usage = `Conformance checks a slicelet or a clerk against Slicer's protocol.

Usage:
  conformance slicelet|clerk [flags] [-- COMMAND ARG...]
        checks the implementation whose driver COMMAND starts, once for each check;
        without COMMAND this repository's own
  conformance vectors
        prints keys and their slice keys, as JSON
  conformance driver slicelet|clerk
        is the driver of this repository's own
  conformance planted slicelet|clerk [FAULT]
        is the driver of a small implementation, with one fault of those that it lists

deploy/docs/CONFORMANCE.md describes what a driver does, and what is required of an
implementation. Exit codes: 0 without faults, 1 with, 2 for a wrong command line,
3 if a check could not be run.

Flags of slicelet and clerk:
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 0 {
		return help(out, errs, errors.New("what to check is missing: slicelet or clerk"))
	}
	switch args[0] {
	case "slicelet", "clerk":
		return check(suite.Role(args[0]), args[1:], out, errs)
	case "vectors":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		_ = e.Encode(suite.Vectors())
		return exitOK
	case "driver", "planted":
		if err := drive(args, in, out); err != nil {
			fmt.Fprintln(errs, "conformance:", err)
			return exitError
		}
		return exitOK
	case "help", "-h", "-help", "--help":
		return help(out, errs, nil)
	}
	return help(out, errs, fmt.Errorf("%q is neither slicelet nor clerk", args[0]))
}

// drive is a driver.
func drive(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 || !slices.Contains([]string{"slicelet", "clerk"}, args[1]) {
		return fmt.Errorf("%s of what: slicelet or clerk", args[0])
	}
	switch {
	case args[0] == "planted":
		return planted.Serve(args[1], args[2:], in, out)
	case args[1] == "slicelet":
		return driver.Slicelet(in, out)
	}
	return driver.Clerk(in, out)
}

// options are the flags of a run.
type options struct {
	flags       *flag.FlagSet
	match       string
	list        bool
	json, trace bool
	slow        bool
	parallel    int
	patience    time.Duration
}

func newOptions(errs io.Writer) *options {
	o := &options{flags: flag.NewFlagSet("conformance", flag.ContinueOnError)}
	o.flags.SetOutput(errs)
	o.flags.StringVar(&o.match, "run", "", "run the checks whose name matches this regular `expression`")
	o.flags.BoolVar(&o.list, "list", false, "print the checks, and run none")
	o.flags.BoolVar(&o.json, "json", false, "print a line of JSON for each check")
	o.flags.BoolVar(&o.trace, "trace", false, "print what was sent and received, of checks that find a fault")
	o.flags.BoolVar(&o.slow, "slow", false, "run the checks that take longer than ten seconds, too")
	o.flags.IntVar(&o.parallel, "parallel", 8, "how many checks run at once, 1 to 64")
	o.flags.DurationVar(&o.patience, "patience", 10*time.Second, "how long what has to happen may take, 1s to 10m")
	o.flags.Usage = func() {
		fmt.Fprint(o.flags.Output(), usage)
		o.flags.PrintDefaults()
	}
	return o
}

func help(out, errs io.Writer, err error) int {
	if err != nil {
		fmt.Fprintf(errs, "conformance: %v (see conformance help)\n", err)
		return exitUsage
	}
	newOptions(out).flags.Usage()
	return exitOK
}

func check(role suite.Role, args []string, out, errs io.Writer) int {
	o := newOptions(errs)
	if err := o.flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	checks, err := o.checks(role)
	if err != nil {
		return help(out, errs, err)
	}
	if o.list {
		for _, c := range checks {
			fmt.Fprintf(out, "%-22s %s (%s)\n", c.Name, c.Text, c.Ref)
		}
		return exitOK
	}
	command := o.flags.Args()
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			fmt.Fprintln(errs, "conformance:", err)
			return exitError
		}
		command = []string{self, "driver", string(role)}
	}
	return o.run(suite.Config{Role: role, Command: command, Patience: o.patience, Parallel: o.parallel}, checks, out)
}

// checks are those that were asked for.
func (o *options) checks(role suite.Role) ([]suite.Check, error) {
	match, err := regexp.Compile(o.match)
	switch {
	case err != nil:
		return nil, fmt.Errorf("-run: %w", err)
	case o.parallel < 1 || o.parallel > 64:
		return nil, fmt.Errorf("-parallel: %d, 1 to 64 is allowed", o.parallel)
	case o.patience < time.Second || o.patience > 10*time.Minute:
		return nil, fmt.Errorf("-patience: %s, 1s to 10m is allowed", o.patience)
	}
	checks := slices.DeleteFunc(suite.Checks(role), func(c suite.Check) bool {
		return !match.MatchString(c.Name) || c.Slow && !o.slow && !o.list
	})
	if len(checks) == 0 {
		return nil, fmt.Errorf("-run: no check matches %q", o.match)
	}
	return checks, nil
}

func (o *options) run(c suite.Config, checks []suite.Check, out io.Writer) int {
	count := make(map[suite.Outcome]int)
	suite.Run(c, checks, func(r suite.Result) {
		count[r.Outcome]++
		bad := r.Outcome == suite.Faulty || r.Outcome == suite.Trouble
		if !o.trace || !bad {
			r.Trace = nil
		}
		if o.json {
			text, _ := json.Marshal(r) // strings and numbers
			fmt.Fprintf(out, "%s\n", text)
			return
		}
		fmt.Fprintln(out, r.Line())
		for _, line := range r.Trace {
			fmt.Fprintln(out, "        "+line)
		}
	})
	if !o.json {
		fmt.Fprintf(out, "%s: %d passed, %d at fault, %d skipped, %d not run\n", c.Role, count[suite.Passed], count[suite.Faulty], count[suite.Skipped], count[suite.Trouble])
	}
	switch {
	case count[suite.Faulty] > 0:
		return exitFaulty
	case count[suite.Trouble] > 0:
		return exitError
	}
	return exitOK
}
