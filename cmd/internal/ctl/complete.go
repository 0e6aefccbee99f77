package ctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// completeLimit is how long a shell waits for names.
const completeLimit = 2 * time.Second

// namer finds names that an argument may have; args are those before it.
type namer func(ctx context.Context, c *client, args []string) ([]string, error)

// jobs names the server's jobs.
func jobs(ctx context.Context, c *client, _ []string) ([]string, error) {
	resp, err := c.admin.ListJobs(ctx, &slicerv1.ListJobsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, j := range resp.Jobs {
		names = append(names, j.GetConfig().GetName())
	}
	return names, nil
}

// tasks names the tasks of the job that the first argument names.
func tasks(ctx context.Context, c *client, args []string) ([]string, error) {
	a, err := c.fetch(ctx, args[0])
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range a.Tasks() {
		names = append(names, t.Name)
	}
	return names, nil
}

// complete offers names for the arguments, one namer an argument, and for a
// flag's value what comes after the arguments. Without an answer from the
// server it offers nothing.
func (a *app) complete(of ...namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		none := cobra.ShellCompDirectiveNoFileComp
		if len(args) >= len(of) {
			return nil, none
		}
		c, err := a.dial()
		if err != nil {
			return nil, none
		}
		defer c.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
		defer cancel()
		names, err := of[len(args)](ctx, c, args)
		if err != nil {
			return nil, none
		}
		var fit []cobra.Completion
		for _, n := range names {
			if strings.HasPrefix(n, prefix) {
				fit = append(fit, n)
			}
		}
		slices.Sort(fit)
		return fit, none
	}
}

// noFiles is for arguments that cannot be guessed.
func noFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// must is for what can only fail by a mistake in this package.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
