// Package run is what Slicer's programs share around their work: flags, exit
// codes, one line an error, logging, TLS, the HTTP port with metrics and probes,
// gRPC servers, and an orderly end when a signal comes.
//
// A program is a cobra command given to Main:
//
//	func main() { os.Exit(run.Main(daemon.Assigner())) }
//
// Main prints an error as one line on standard error and returns 2 when the
// command line is to blame, 1 otherwise, or what the error's ExitCode method
// says.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicer-project/slicer/assignment"
)

// Exit codes that all programs have in common.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// UsageError blames the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode is ExitUsage.
func (e *UsageError) ExitCode() int { return ExitUsage }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Main runs the program until it is done or a SIGINT or SIGTERM has ended it,
// and returns its exit code. A second signal kills the process at once.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Execute(ctx, cmd, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Execute runs the command with these arguments and streams and returns its exit code.
func Execute(ctx context.Context, cmd *cobra.Command, args []string, in io.Reader, out, errs io.Writer) int {
	prepare(cmd)
	cmd.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	switch line := oneLine(err.Error()); {
	case strings.HasPrefix(line, cmd.Name()+" "): // it names a command of the program
		fmt.Fprintln(errs, line)
	case line != "":
		fmt.Fprintf(errs, "%s: %s\n", cmd.Name(), line)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return ExitFailed
}

// prepare gives a tree of commands the manners that all programs have.
func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.InitDefaultCompletionCmd() // now, so that it has the same manners
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usagef("%w (see %s --help)", wrongValue(err), c.CommandPath())
	})
	// A command that is there for its subcommands does not run by itself.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.DisableFlagsInUseLine = true
		c.SuggestionsMinimumDistance = 2
		if c.HasSubCommands() && c.RunE == nil {
			c.Args, c.RunE = unknownSubcommand, needsSubcommand
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// wrongValue says of a flag's value what is allowed, where pflag says what failed in parsing it.
func wrongValue(err error) error {
	var v *pflag.InvalidValueError
	if !errors.As(err, &v) || errors.Is(err, strconv.ErrRange) {
		return err
	}
	allowed := map[string]string{
		"bool": "true or false", "duration": "a duration, such as 5s or 500ms", "float64": "a number",
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
		"uint": "a whole number, 0 or more", "uint32": "a whole number, 0 or more", "uint64": "a whole number, 0 or more",
	}[v.GetFlag().Value.Type()]
	if allowed == "" {
		return err
	}
	return fmt.Errorf("--%s: %q is not allowed: want %s", v.GetFlag().Name, v.GetValue(), allowed)
}

func unknownSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
	}
	return Usagef("unknown command %q for %s%s (see %s --help)", assignment.Clip(args[0], 80), c.CommandPath(), hint, c.CommandPath())
}

func needsSubcommand(c *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			names = append(names, sub.Name())
		}
	}
	return Usagef("%s needs a command: one of %s (see %s --help)", c.CommandPath(), strings.Join(names, ", "), c.CommandPath())
}

// Args checks that a command got as many arguments as it has names for; a last
// name that ends in "..." stands for one or more.
func Args(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		many := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
		switch {
		case len(args) < len(names):
			return Usagef("%s: %s is missing (usage: %s)", c.CommandPath(), strings.TrimSuffix(names[len(args)], "..."), c.UseLine())
		case len(args) > len(names) && !many:
			return Usagef("%s: unexpected argument %q (usage: %s)", c.CommandPath(), assignment.Clip(args[len(names)], 80), c.UseLine())
		}
		return nil
	}
}

// oneLine puts a message that others may have broken into lines on one.
func oneLine(s string) string {
	var parts []string
	for l := range strings.Lines(s) {
		if l = strings.Join(strings.Fields(l), " "); l != "" {
			parts = append(parts, l)
		}
	}
	return strings.Join(parts, "; ")
}

// Version is the version of the module that the program was built from, and
// the commit where the build knows it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]) {
			v += " (" + s.Value[:min(12, len(s.Value))] + ")"
		}
	}
	return v + " " + info.GoVersion
}
