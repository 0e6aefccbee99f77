package run_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// exec runs a command and returns its exit code, standard output and errors.
func exec(cmd *cobra.Command, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run.Execute(context.Background(), cmd, args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

type coded struct{ error }

func (coded) ExitCode() int { return 7 }

func sample(err error) *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "A tool"}
	group := &cobra.Command{Use: "group"}
	leaf := &cobra.Command{Use: "leaf A B...", Args: run.Args("A", "B..."), RunE: func(*cobra.Command, []string) error { return err }}
	leaf.Flags().Int("count", 1, "how many")
	leaf.Flags().Duration("for", 0, "how long")
	group.AddCommand(leaf)
	root.AddCommand(group)
	return root
}

// The process's own arguments count only where they are given.
func TestNoArguments(t *testing.T) {
	own := os.Args
	defer func() { os.Args = own }()
	os.Args = []string{"tool", "stray"}
	if _, _, errs := exec(sample(nil)); !strings.HasPrefix(errs, "tool needs a command") {
		t.Errorf("without arguments: %q", errs)
	}
}

func TestExecute(t *testing.T) {
	for _, c := range []struct {
		args []string
		err  error
		code int
		errs string
	}{
		{args: []string{"group", "leaf", "a", "b", "c"}},
		{args: []string{"group", "leaf", "a", "b"}, err: errors.New("two\nlines"), code: 1, errs: "tool: two; lines\n"},
		{args: []string{"group", "leaf", "a", "b"}, err: coded{errors.New("seven")}, code: 7, errs: "tool: seven\n"},
		{args: []string{"group", "leaf", "a"}, code: 2, errs: "tool group leaf: B is missing (usage: tool group leaf A B...)\n"},
		{args: []string{"group", "leaf", "a", "b", "--count", "x"}, code: 2, errs: `tool: --count: "x" is not allowed: want a whole number (see tool group leaf --help)` + "\n"},
		{args: []string{"group", "leaf", "a", "b", "--for", "5"}, code: 2, errs: `tool: --for: "5" is not allowed: want a duration, such as 5s or 500ms (see tool group leaf --help)` + "\n"},
		{args: []string{"group", "leaf", "--nope"}, code: 2, errs: "tool: unknown flag: --nope (see tool group leaf --help)\n"},
		{args: []string{"grp"}, code: 2, errs: `tool: unknown command "grp" for tool, did you mean group? (see tool --help)` + "\n"},
		{args: []string{"group", "lef"}, code: 2, errs: `tool: unknown command "lef" for tool group, did you mean leaf? (see tool group --help)` + "\n"},
		{args: []string{"completion", "ksh"}, code: 2, errs: `tool: unknown command "ksh" for tool completion, did you mean bash or fish or zsh? (see tool completion --help)` + "\n"},
		{args: []string{"group"}, code: 2, errs: "tool group needs a command: one of leaf (see tool group --help)\n"},
		{args: []string{}, code: 2, errs: "tool needs a command: one of completion, group (see tool --help)\n"},
	} {
		code, out, errs := exec(sample(c.err), c.args...)
		if code != c.code || errs != c.errs || out != "" {
			t.Errorf("%q: exit %d, output %q, errors %q; want %d, none, %q", c.args, code, out, errs, c.code, c.errs)
		}
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := exec(sample(nil), "--version")
	if code != 0 || !strings.HasPrefix(out, "tool ") || !strings.Contains(out, "go1") || errs != "" {
		t.Errorf("exit %d, %q, %q", code, out, errs)
	}
}
