package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/test/conformance/suite"
)

// asProgram makes the test's binary the program itself, so that drivers are processes as those of
// other languages are.
const asProgram = "SLICER_CONFORMANCE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil { // for the drivers
		panic(err)
	}
	waittest.SideBySide()
	goleak.VerifyTestMain(m)
}

// program runs it, and returns its exit code and what it prints.
func program(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string // in what it prints
		errs string // and on standard error
	}{
		{[]string{"help"}, exitOK, "conformance slicelet|clerk [flags] [-- COMMAND ARG...]", ""},
		{nil, exitUsage, "", "slicelet or clerk"},
		{[]string{"server"}, exitUsage, "", `"server" is neither slicelet nor clerk`},
		{[]string{"clerk", "-run", "("}, exitUsage, "", "-run: error parsing regexp"},
		{[]string{"clerk", "-run", "no-such"}, exitUsage, "", `no check matches "no-such"`},
		{[]string{"clerk", "-parallel", "0"}, exitUsage, "", "-parallel: 0, 1 to 64 is allowed"},
		{[]string{"clerk", "-patience", "1ms"}, exitUsage, "", "-patience: 1ms, 1s to 10m is allowed"},
		{[]string{"clerk", "-nonsense"}, exitUsage, "", "not defined: -nonsense"},
		{[]string{"clerk", "-list", "-run", "^hash$"}, exitOK, "XXH64", ""},
		{[]string{"slicelet", "-list"}, exitOK, "keepalive", ""},
		{[]string{"vectors"}, exitOK, `"slice_key": "77a36d9ba8ec74cc"`, ""},
		{[]string{"clerk", "-run", "^hash$"}, exitOK, "clerk: 1 passed, 0 at fault, 0 skipped, 0 not run", ""},
		{[]string{"slicelet", "-run", "^hello$", "--", "/no/such/driver"}, exitError, "ERROR  slicelet/hello: driver: ", ""},
		{[]string{"slicelet", "-run", "^hello$", "-patience", "1s", "--", os.Args[0], "planted", "slicelet", "no-such"}, exitFaulty, `fault "no-such" of a slicelet is not known`, ""},
		{[]string{"slicelet", "-run", "^starting$", "--", os.Args[0], "planted", "slicelet"}, exitOK, "skip   slicelet/starting: needs the operation start", ""},
		{[]string{"driver", "server"}, exitError, "", "driver of what: slicelet or clerk"},
	} {
		code, out, errs := program(c.args...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%q: exit code %d, want %d, with %q and %q:\n%s\n%s", c.args, code, c.code, c.out, c.errs, out, errs)
		}
	}
}

// TestFault is what a fault looks like, as text and as JSON, with what has led to it.
func TestFault(t *testing.T) {
	args := []string{"-run", "^other-job$", "-trace", "--", os.Args[0], "planted", "clerk", "any-job"}
	code, out, _ := program(append([]string{"clerk"}, args...)...)
	for _, want := range []string{
		"FAULT  clerk/other-job: want an Ack with a refusal, of generation 1700000000000, for an assignment of another job; saw ack:{generation:1700000000001} (deploy/docs/CONFORMANCE.md#subscribers)\n",
		"A gets hello:{", "A sends chunk of", "driver: {\"op\":\"start\"", "clerk: 0 passed, 1 at fault",
	} {
		if code != exitFaulty || !strings.Contains(out, want) {
			t.Errorf("exit code %d, without %q:\n%s", code, want, out)
		}
	}
	_, out, _ = program(append([]string{"clerk", "-json"}, args...)...)
	var r suite.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Check != "clerk/other-job" || r.Outcome != suite.Faulty || r.Ref != "deploy/docs/CONFORMANCE.md#subscribers" || !strings.HasPrefix(r.Want, "an Ack with a refusal") || !strings.HasPrefix(r.Saw, "ack:{") || len(r.Trace) == 0 {
		t.Errorf("%+v", r)
	}
}

// TestReferences looks for the headings that checks refer to, and that each check has a name of
// its own and a sentence.
func TestReferences(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, role := range roles {
		names := make(map[string]bool)
		for _, c := range suite.Checks(role) {
			if names[c.Name] || !strings.HasSuffix(c.Text, ".") {
				t.Errorf("%s/%s: the name is not its own, or there is no sentence: %q", role, c.Name, c.Text)
			}
			names[c.Name] = true
			page, anchor, _ := strings.Cut(c.Ref, "#")
			text, err := os.ReadFile(filepath.Join("..", "..", page))
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
				found = found || strings.ReplaceAll(strings.Map(func(r rune) rune {
					if strings.ContainsRune(",.:`", r) {
						return -1
					}
					return r
				}, strings.ToLower(m[1])), " ", "-") == anchor
			}
			if !found {
				t.Errorf("%s/%s: %s has no heading %q", role, c.Name, page, anchor)
			}
		}
	}
}
