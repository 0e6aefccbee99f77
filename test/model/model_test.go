//go:build system

package model

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// run is one run of the checker.
type run struct {
	name    string
	defines string
	long    bool // left out unless SLICER_MODEL=long
	cycles  bool // look for cycles without progress instead of broken assertions
	breaks  string
}

// What a run breaks, and how the checker says so.
var complaints = map[string]*regexp.Regexp{
	"I1": regexp.MustCompile(`assertion violated \(\( !\(slicelet\[0\]\.belief\)`),
	"I2": regexp.MustCompile(`assertion violated .*(unbroken|haveGuard)`),
	"I3": regexp.MustCompile(`assertion violated (0 |.*head==)|non-progress cycle`),
}

var sound = []run{
	{name: "I1, I2 and I3: two assigners, two slicelets, three generations", defines: "-DI2 -DI3 -DTWINS"},
	{name: "I3 without a rank", defines: "-DCALM -DCOME_BACK -DTWINS -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", cycles: true},
	{name: "messages that change nothing are not forgotten", defines: "-DI2 -DN=2 -DASSIGNERS=1 -DUNTIDY -DFEW_FAULTS"},
	{name: "acquire compares the value only", defines: "-DACQUIRE_CLOSED -DN=2 -DASSIGNERS=1 -DFEW_FAULTS"},
	{name: "bridge closed without waiting, the next one waits", defines: "-DCLOSE_NO_WAIT -DTWINS -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY"},
	{name: "bridge closed once free, the next one not compared", defines: "-DBRIDGE_NO_WAIT -DTWINS -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY"},
	{name: "a store that goes back", defines: "-DBACK -DN=2 -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY"},
	{name: "slicelets by their names", defines: "-DI2 -DI3", long: true},
	{name: "messages that change nothing are not forgotten, all faults", defines: "-DI2 -DTWINS -DUNTIDY", long: true},
	{name: "I3 without a rank, three generations", defines: "-DCALM -DTWINS", cycles: true, long: true},
	{name: "I3 without a rank, the dead come back", defines: "-DCALM -DCOME_BACK -DTWINS -DN=2", cycles: true, long: true},
	{name: "acquire compares the value only, all faults", defines: "-DACQUIRE_CLOSED -DTWINS -DN=2", long: true},
	{name: "bridge closed without waiting, all faults", defines: "-DCLOSE_NO_WAIT -DI2 -DTWINS", long: true},
	{name: "next bridge not compared, all faults", defines: "-DBRIDGE_NO_WAIT -DI2 -DTWINS", long: true},
}

var wrong = []run{
	{name: "no wait for holders", defines: "-DNO_WAIT -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "emptiness looked up before", defines: "-DLOOK_BEFORE -DN=2 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "acquire that does not compare the record", defines: "-DACQUIRE_BLIND -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "bridge kept into the next change", defines: "-DBRIDGE_KEPT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge closed without waiting", defines: "-DCLOSE_NO_WAIT -DBRIDGE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge deleted without being recalled", defines: "-DDELETE_OPEN -DCLOSE_NO_WAIT -DBRIDGE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge deleted without being recalled, once free", defines: "-DDELETE_OPEN -DI3 -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I3"},
	{name: "recall taken back after a while", defines: "-DREOPEN -DI3 -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I3"},
	{name: "recall taken back after a while, without a rank", defines: "-DREOPEN -DCALM -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", cycles: true, breaks: "I3"},
	{name: "bridge created before the assignment is written", defines: "-DBRIDGE_EARLY -DN=2", breaks: "I1"},
	{name: "target decided anew by the one that resumes", defines: "-DTARGET_ANEW", breaks: "I1"},
	{name: "believing until the release is answered", defines: "-DBELIEVE_ON -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "deadline here not before the store's", defines: "-DDEADLINE_LATE -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "answer to an old session credited to the new", defines: "-DOLD_ANSWER -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "intersecting with what was held last", defines: "-DLAST_HELD -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I1"},
	{name: "a store that has gone back is not noticed", defines: "-DBACK -DNO_CHECK -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I1"},
	{name: "a store that has gone back is not suspended", defines: "-DBACK -DNO_SUSPENSION -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I1"},
	{name: "a session believed in again after its deadline, in a store that has gone back", defines: "-DBACK -DREVIVE -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I1"},
	{name: "two live incarnations under one name", defines: "-DTWO_LIVE -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "shrinking as soon as the bridge is held", defines: "-DSHRINK -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "letting go before holding the next", defines: "-DLET_GO -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "letting go first, with an assigner that waits without bound", defines: "-DLET_GO -DUNBOUNDED -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "separate watches for guard and bridge", defines: "-DSEPARATE_WATCHES -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
}

var (
	states  = regexp.MustCompile(`(?m)^\s*([0-9.e+]+) states, stored`)
	memory  = regexp.MustCompile(`(?m)^\s*([0-9.]+)\s+total actual memory`)
	depth   = regexp.MustCompile(`\(at depth (\d+)\)`)
	failure = regexp.MustCompile(`(?m)^pan:\d*: (.*)$`)
	noError = regexp.MustCompile(`errors: 0\b`)
)

func TestProtocol(t *testing.T) {
	for _, r := range sound {
		t.Run(r.name, func(t *testing.T) {
			if r.long && os.Getenv("SLICER_MODEL") != "long" {
				t.Log("part of the long run: SLICER_MODEL=long")
				return
			}
			if !r.long { // those fill the memory one by one
				t.Parallel()
			}
			out, took := check(t, r)
			if !noError.MatchString(out) || failure.MatchString(out) || strings.Contains(out, "max search depth") {
				t.Fatalf("%s: the checker complains, or did not see everything:\n%s", r.defines, out)
			}
			t.Logf("%s: %s states, exhaustively, in %s and %s MB: no violation", r.defines, found(states, out), took, found(memory, out))
		})
	}
}

func TestWrongVariantsAreFound(t *testing.T) {
	for _, r := range wrong {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			out, took := check(t, r)
			if !complaints[r.breaks].MatchString(out) {
				t.Fatalf("%s: the checker has not found that this breaks %s:\n%s", r.defines, r.breaks, out)
			}
			t.Logf("%s: breaks %s after %s steps (%s states, %s)", r.defines, r.breaks, found(depth, out), found(states, out), took)
		})
	}
}

// check generates the checker, compiles and runs it, and returns what it says.
func check(t *testing.T, r run) (string, time.Duration) {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("*.pml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no model: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defines := strings.Fields(r.defines)
	command(t, dir, "spin", append(defines, "-a", "consistent.pml")...)
	// Without partial order reduction: nearly every step here touches what all share.
	flags := []string{"-DNOREDUCE", "-DMEMLIM=9000"}
	args := []string{"-m1000000", "-w24"}
	if r.breaks == "" {
		flags = append(flags, "-O1") // more takes longer to compile than it saves, and so does this for few states
	}
	switch {
	case r.cycles:
		flags, args = append(flags, "-DNP"), append(args, "-l")
	case r.breaks != "":
		flags = append(flags, "-DSAFETY", "-DBFS") // the shortest traces there are
	default:
		flags = append(flags, "-DSAFETY")
	}
	if r.long {
		flags, args = append(flags, "-DCOLLAPSE"), append(args, "-w26")
	}
	command(t, dir, "gcc", append(flags, "-o", "pan", "pan.c")...)
	start := time.Now()
	out := command(t, dir, "./pan", args...)
	return out, time.Since(start).Round(10 * time.Millisecond)
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v (needed: spin, gcc)\n%s", fmt.Sprint(name, args), err, out.String())
	}
	return out.String()
}

func found(re *regexp.Regexp, out string) string {
	if m := re.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return "?"
}
