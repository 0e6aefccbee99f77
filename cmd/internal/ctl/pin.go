package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// rangeFlags name keys: one, or a range of slice keys.
type rangeFlags struct{ key, from, to string }

func (f *rangeFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "an application `key`")
	cmd.Flags().StringVar(&f.from, "from", "", "first slice key of a range, 16 hexadecimal digits as inspect prints them")
	cmd.Flags().StringVar(&f.to, "to", "", "slice key at which the range ends; 8000000000000000 is the end of the keyspace")
}

// slice reads them.
func (f *rangeFlags) slice(cmd *cobra.Command) (s assignment.Slice, err error) {
	key, from, to := cmd.Flags().Changed("key"), cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
	switch {
	case key && (from || to), !key && !(from && to):
		return s, run.Usagef("%s: want --key KEY, or --from HEX and --to HEX", cmd.Name())
	case key:
		if err := checkKey(1, f.key); err != nil {
			return s, err
		}
		s.Start = assignment.KeyOf(f.key)
		s.End = s.Start + 1
		return s, nil
	}
	if s.Start, err = assignment.ParseSliceKey(f.from); err != nil {
		return s, run.Usagef("--from: %w", err)
	}
	if s.End, err = assignment.ParseSliceKey(f.to); err != nil {
		return s, run.Usagef("--to: %w", err)
	}
	if s.Start >= s.End {
		return s, run.Usagef("--to: %q is not allowed: want a slice key above --from, which is %s", f.to, s.Start)
	}
	return s, nil
}

func (f *rangeFlags) String() string {
	if f.from == "" {
		return "key " + printable(f.key)
	}
	return "[" + f.from + "," + f.to + ")"
}

func (a *app) pinCommand() *cobra.Command {
	var keys rangeFlags
	var task string
	cmd := &cobra.Command{
		Use:   "pin JOB (--key KEY | --from HEX --to HEX) --task TASK [--reason TEXT]",
		Short: "Keep a key or a range of keys at one task",
		Long: `Cuts a key or a range of slice keys out of its slices and gives it to one task,
which owns it alone, however hot it is and whatever min_replicas says, until
slicerctl unpin. The balancer works around it. While the task is dead, drains or is
excluded the keys go to others, and come back with it.`,
		Example: `  slicerctl pin my-job --key user/4711 --task web-3 --reason 'large customer, large machine'
  slicerctl pin my-job --from 4000000000000000 --to 5000000000000000 --task web-1`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
	}
	keys.bind(cmd)
	cmd.Flags().StringVar(&task, "task", "", "the `task` that is to own the keys")
	must(cmd.RegisterFlagCompletionFunc("task", a.complete(jobs, tasks)))
	return a.orderCommand(cmd, func([]string) (*slicerv1.GiveOrderRequest, error) {
		s, err := keys.slice(cmd)
		if err != nil {
			return nil, err
		}
		if task == "" {
			return nil, run.Usagef("--task: %q is not allowed: want the task that is to own the keys", task)
		}
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Pin{Pin: &slicerv1.PinOrder{Start: uint64(s.Start), End: uint64(s.End), Key: []byte(keys.key), Task: task}}}, nil
	}, func(args []string, v *orderView) string {
		if v.Pending != "" {
			return fmt.Sprintf("%s of job %s is to be at task %s", &keys, args[0], task)
		}
		return fmt.Sprintf("%s of job %s is at task %s, as of generation %d", &keys, args[0], task, v.Generation)
	})
}

func (a *app) unpinCommand() *cobra.Command {
	var keys rangeFlags
	cmd := &cobra.Command{
		Use:   "unpin JOB (--key KEY | --from HEX --to HEX) [--reason TEXT]",
		Short: "Let the balancer have pinned keys again",
		Long: `Lifts all pins that hold the key, or a key of the range. The keys stay where they
are until the balancer has a reason to move them.`,
		Example:           `  slicerctl unpin my-job --key user/4711`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
	}
	keys.bind(cmd)
	return a.orderCommand(cmd, func([]string) (*slicerv1.GiveOrderRequest, error) {
		s, err := keys.slice(cmd)
		if err != nil {
			return nil, err
		}
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Unpin{Unpin: &slicerv1.UnpinOrder{Start: uint64(s.Start), End: uint64(s.End), Key: []byte(keys.key)}}}, nil
	}, func(args []string, _ *orderView) string {
		return fmt.Sprintf("%s of job %s is not pinned any more", &keys, args[0])
	})
}

func (a *app) rollbackCommand() *cobra.Command {
	var freeze bool
	cmd := &cobra.Command{
		Use:   "rollback JOB GENERATION [--freeze] [--reason TEXT]",
		Short: "Go back to the placement of an earlier generation",
		Long: `Makes a new generation with the slices and owners of an earlier one that the store
still keeps (slicerctl history names them). Slices of tasks that are not running go
to others; pins and exclusions hold as ever, and the answer says how many slices are
elsewhere for that. Balancing goes on from there, unless --freeze freezes the job
with the same order. If it cannot be done in time, nothing changes.`,
		Example: `  slicerctl history my-job --limit 10
  slicerctl rollback my-job 1795285034001 --freeze --reason 'latency since the last one'`,
		Args:              run.Args("JOB", "GENERATION"),
		ValidArgsFunction: a.complete(jobs),
	}
	cmd.Flags().BoolVar(&freeze, "freeze", false, "freeze the job, too, so that it stays there")
	return a.orderCommand(cmd, func(args []string) (*slicerv1.GiveOrderRequest, error) {
		g, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || g < 1 || g > int64(assignment.MaxGeneration) {
			return nil, run.Usagef("GENERATION: %q is not allowed: want 1 to %d, as slicerctl history prints it", args[1], assignment.MaxGeneration)
		}
		return &slicerv1.GiveOrderRequest{Order: &slicerv1.GiveOrderRequest_Rollback{Rollback: &slicerv1.RollbackOrder{Generation: g, Freeze: freeze}}}, nil
	}, func(args []string, v *orderView) string {
		s := fmt.Sprintf("job %s has the placement of generation %s again, as generation %d", args[0], args[1], v.Generation)
		if freeze {
			s += ", and is frozen"
		}
		return s
	})
}
