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
	"I1": regexp.MustCompile(`assertion violated \(\( !\(belief`),
	"I2": regexp.MustCompile(`assertion violated .*(unbroken|haveGuard)`),
	"I3": regexp.MustCompile(`assertion violated .*(head==|deadStay)`),
}

var sound = []run{
	{name: "I1 and I2, three generations", defines: "-DI2"},
	{name: "I3, two generations", defines: "-DI3 -DN=2"},
	{name: "I3, no cycles", defines: "-DI3 -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", cycles: true},
	{name: "messages that change nothing are not forgotten", defines: "-DI2 -DN=2 -DASSIGNERS=1 -DUNTIDY -DFEW_FAULTS"},
	{name: "acquire compares the value only", defines: "-DACQUIRE_CLOSED -DN=2 -DASSIGNERS=1 -DFEW_FAULTS"},
	{name: "bridge closed without waiting, the next one waits", defines: "-DCLOSE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY"},
	{name: "bridge closed once free, the next one not compared", defines: "-DBRIDGE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY"},
	{name: "I3, three generations, one assigner", defines: "-DI3 -DASSIGNERS=1", long: true},
	{name: "I3, three generations", defines: "-DI3", long: true},
	{name: "I2, nothing forgotten, two assigners", defines: "-DI2 -DN=2 -DUNTIDY", long: true},
	{name: "acquire compares the value only, all faults", defines: "-DACQUIRE_CLOSED -DN=2", long: true},
	{name: "bridge closed without waiting, all faults", defines: "-DCLOSE_NO_WAIT -DI2", long: true},
	{name: "next bridge not compared, all faults", defines: "-DBRIDGE_NO_WAIT -DI2", long: true},
}

var wrong = []run{
	{name: "no wait for holders", defines: "-DNO_WAIT -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "emptiness looked up before", defines: "-DLOOK_BEFORE -DN=2 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "acquire that does not compare the record", defines: "-DACQUIRE_BLIND -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "bridge kept into the next change", defines: "-DBRIDGE_KEPT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge closed without waiting", defines: "-DCLOSE_NO_WAIT -DBRIDGE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge deleted without being recalled", defines: "-DDELETE_OPEN -DCLOSE_NO_WAIT -DBRIDGE_NO_WAIT -DASSIGNERS=1 -DFEW_FAULTS -DNO_EXPIRY", breaks: "I1"},
	{name: "bridge deleted without being recalled, once free", defines: "-DDELETE_OPEN -DI3 -DN=2 -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I3"},
	{name: "bridge created before the assignment is written", defines: "-DBRIDGE_EARLY -DN=2", breaks: "I1"},
	{name: "target decided anew by whoever resumes", defines: "-DTARGET_ANEW", breaks: "I1"},
	{name: "believing until the release is answered", defines: "-DBELIEVE_ON -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "deadline here not before the store's", defines: "-DDEADLINE_LATE -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "answer to an old session credited to the new", defines: "-DOLD_ANSWER -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "intersecting with what was held last", defines: "-DLAST_HELD -DASSIGNERS=1 -DFEW_FAULTS", breaks: "I1"},
	{name: "two live incarnations under one name", defines: "-DTWO_LIVE -DN=2 -DASSIGNERS=1", breaks: "I1"},
	{name: "shrinking as soon as the bridge is held", defines: "-DSHRINK -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "letting go before holding the next", defines: "-DLET_GO -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "letting go first, with an assigner that waits without bound", defines: "-DLET_GO -DUNBOUNDED -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
	{name: "separate watches for guard and bridge", defines: "-DSEPARATE_WATCHES -DI2 -DN=2 -DASSIGNERS=1", breaks: "I2"},
}

var (
	states  = regexp.MustCompile(`(?m)^\s*([0-9.e+]+) states, stored`)
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
			out, took := check(t, r)
			if !noError.MatchString(out) || failure.MatchString(out) || strings.Contains(out, "max search depth") {
				t.Fatalf("%s: the checker complains, or did not see everything:\n%s", r.defines, out)
			}
			t.Logf("%s: %s states, exhaustively, in %s: no violation", r.defines, found(states, out), took)
		})
	}
}

func TestWrongVariantsAreFound(t *testing.T) {
	for _, r := range wrong {
		t.Run(r.name, func(t *testing.T) {
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
	model, err := os.ReadFile("consistent.pml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "consistent.pml"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	defines := strings.Fields(r.defines)
	command(t, dir, "spin", append(defines, "-a", "consistent.pml")...)
	// An unreduced search: nearly every step here touches what all share.
	flags := []string{"-O2", "-DNOREDUCE", "-DMEMLIM=16000"}
	args := []string{"-m5000000", "-w24"}
	switch {
	case r.cycles:
		flags, args = append(flags, "-DNP"), append(args, "-l")
	case r.breaks == "I3":
		flags = append(flags, "-DSAFETY") // breadth first knows no timeout
	case r.breaks != "":
		flags = append(flags, "-DSAFETY", "-DBFS")
	case r.long:
		flags, args = append(flags, "-DSAFETY", "-DCOLLAPSE"), append(args, "-w27")
	default:
		flags = append(flags, "-DSAFETY")
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
