package ctl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

type lookupView struct {
	Key      string   `json:"key"`
	SliceKey string   `json:"slice_key"`
	Start    string   `json:"start"`
	End      string   `json:"end"`
	Tasks    []ownerV `json:"tasks"`
}

type ownerV struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Since is the generation since which it owns the slice without a break, or a later one.
	Since int64 `json:"since"`
	// Gone: the assigner knows that it is dead, or has another process in its place.
	Gone bool `json:"gone,omitempty"`
}

func (a *app) lookupCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "lookup JOB KEY... | lookup JOB -f FILE",
		Short: "Show which tasks own keys",
		Long: `Shows for each application key its slice key (the hash that is sharded), the slice
that holds it, and the tasks that own it in the newest assignment; gone is an owner
that the assigner knows to be dead, or to have another process in its place, as in a
job that is frozen. A key has at most 4096 bytes. With -f keys are read from a file,
one a line; - is standard input.`,
		Example: `  slicerctl lookup my-job user/4711 user/4712
  cut -f1 users.tsv | slicerctl lookup my-job -f - --json`,
		ValidArgsFunction: a.complete(jobs),
		Args: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return run.Args("JOB")(cmd, args)
			}
			return run.Args("JOB", "KEY...")(cmd, args)
		},
		RunE: a.with(func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			keys := args[1:]
			if file != "" {
				var err error
				if keys, err = readKeys(file, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			for i, k := range keys {
				if err := checkKey(i+1, k); err != nil {
					return err
				}
			}
			as, err := c.fetch(ctx, args[0])
			if err != nil {
				return err
			}
			return a.printLookups(cmd.OutOrStdout(), as, c.gone(ctx, as), keys)
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read keys from a `file`, one a line; - is standard input")
	return cmd
}

func checkKey(n int, key string) error {
	if assignment.CheckKey(key) != nil {
		return run.Usagef("key %d has %d bytes: want at most %d", n, len(key), assignment.MaxKeyLen)
	}
	return nil
}

func readKeys(file string, in io.Reader) ([]string, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var keys []string
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, assignment.MaxKeyLen+2)
	for lines.Scan() {
		keys = append(keys, strings.TrimSuffix(lines.Text(), "\r"))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s, line %d: %w (a key has at most %d bytes)", file, len(keys)+1, err, assignment.MaxKeyLen)
	}
	return keys, nil
}

func (a *app) printLookups(w io.Writer, as *assignment.Assignment, gone func(assignment.Task) bool, keys []string) error {
	rows := make([]lookupView, 0, len(keys))
	for _, k := range keys {
		sk := assignment.KeyOf(k)
		i := as.Find(sk)
		s := as.Slice(i)
		row := lookupView{Key: k, SliceKey: sk.String(), Start: s.Start.String(), End: s.End.String()}
		r := as.Replicas(i)
		for j := range r.Len() {
			t := r.At(j)
			row.Tasks = append(row.Tasks, ownerV{t.Name, t.Address, int64(r.Since(j)), gone(t)})
		}
		rows = append(rows, row)
	}
	if a.json {
		return printJSON(w, struct {
			Job        string       `json:"job"`
			Generation int64        `json:"generation"`
			Keys       []lookupView `json:"keys"`
		}{as.Job(), int64(as.Generation()), rows})
	}
	t := newTable("KEY", "SLICE KEY", "SLICE", "TASKS")
	for _, r := range rows {
		var owners []string
		for _, o := range r.Tasks {
			if o.Gone {
				o.Address += ", gone"
			}
			owners = append(owners, o.Name+" ("+o.Address+")")
		}
		t.row(printable(r.Key), r.SliceKey, "["+r.Start+","+r.End+")", strings.Join(owners, " "))
	}
	t.print(w)
	return nil
}

// printable keeps a key from breaking a table.
func printable(key string) string {
	if q := fmt.Sprintf("%q", key); key == "" || len(q) != len(key)+2 {
		key = q
	}
	return assignment.Clip(key, 60)
}
