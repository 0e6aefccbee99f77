// Package plan holds the commands of slicerctl that answer questions before
// there is a cluster to ask: simulate replays traffic through sharding
// algorithms, subset measures how clients would be connected to servers. They
// need no server.
//
//	cmd.AddCommand(plan.Simulate(&json), plan.Subset(&json))
//
// With the same arguments they print and draw the same, but for how long
// decisions took.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/deploy/plot"
)

// explain blames the flag that an error of the libraries is about, if it is about
// one.
func explain(err error, cmd *cobra.Command) error {
	if err != nil && cmd.Context().Err() != nil {
		return errors.New("interrupted")
	}
	var field *assignment.FieldError
	if !errors.As(err, &field) {
		return err
	}
	flag := strings.ReplaceAll(field.Field, "_", "-")
	if cmd.Flags().Lookup(flag) == nil {
		return err
	}
	return run.Usagef("--%s: %w", flag, notAllowed{field.Value, field.Allowed})
}

// notAllowed says what a flag's value should have been.
type notAllowed struct {
	value any
	want  string
}

func (e notAllowed) Error() string {
	v := fmt.Sprintf("%v", e.value)
	if s, ok := e.value.(string); ok {
		v = fmt.Sprintf("%q", assignment.Clip(s, 80))
	}
	return fmt.Sprintf("%s is not allowed: want %s", v, e.want)
}

// check is a *run.UsageError unless ok.
func check(ok bool, flag string, value any, want string) error {
	if ok {
		return nil
	}
	return run.Usagef("--%s: %w", flag, notAllowed{value, want})
}

func checkPlot(cmd *cobra.Command, file string) error {
	if !cmd.Flags().Changed("plot") {
		return nil
	}
	if err := check(strings.HasSuffix(strings.ToLower(file), ".svg"), "plot", file, "a file name that ends in .svg"); err != nil {
		return err
	}
	return plot.Writable(file)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printLine writes one value on one line.
func printLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// printTable aligns rows, the first of which are titles: the first column to
// the left, the others to the right.
func printTable(w io.Writer, rows [][]string) error {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			switch {
			case i == 0:
				b.WriteString(c + pad)
			default:
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number prints with three significant digits, and all that stand before the point.
func number(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func percent(x float64) string {
	switch {
	case x == 0:
		return "0%"
	case x < .0001:
		return "<.01%"
	}
	return fmt.Sprintf("%.2f%%", 100*x)
}
