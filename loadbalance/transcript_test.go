package loadbalance_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance"
)

// transcript is a job whose rounds are told in testdata.
type transcript struct {
	t         *testing.T
	cfg       assignment.JobConfig
	published bool
	tasks     []assignment.Task
	a         *assignment.Assignment
	state     *loadbalance.State
}

// TestTranscripts plays the files of testdata/rounds. Commands:
//
//	job tasks=N [min=N] [max=N] [slices=(FEWEST,MOST)] [algorithm=NAME] [weights=(W,W...)]
//	task NAME STATE          changes a task, or brings in a new one
//	restart NAME             gives it a new incarnation
//	round [membership]       input: a line "KEY RATE" for each key with load,
//	                         KEY being the first hexadecimal digits of a slice key
//
// Job and round print the decisions, in order, and then the owners.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/rounds", func(t *testing.T, path string) {
		s := &transcript{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			switch d.Cmd {
			case "job":
				return s.job(d)
			case "task":
				return s.task(d.CmdArgs[0].Key, d.CmdArgs[1].Key)
			case "restart":
				for i := range s.tasks {
					if s.tasks[i].Name == d.CmdArgs[0].Key {
						s.tasks[i].Incarnation++
					}
				}
				return ""
			case "round":
				return s.round(d.Input, d.HasArg("membership"))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func (s *transcript) job(d *datadriven.TestData) string {
	n, lo, hi, fewest, most := 0, 1, 1, 2, 8
	alg := ""
	d.ScanArgs(s.t, "tasks", &n)
	d.MaybeScanArgs(s.t, "min", &lo)
	d.MaybeScanArgs(s.t, "max", &hi)
	if d.HasArg("slices") {
		d.ScanArgs(s.t, "slices", &fewest, &most)
	}
	d.MaybeScanArgs(s.t, "algorithm", &alg)
	s.cfg, s.published = config(lo, max(lo, hi)), alg == "published"
	s.cfg.Balance.MinSlicesPerTask, s.cfg.Balance.MaxSlicesPerTask = fewest, most
	// With few slices the usual budgets allow no move at all.
	s.cfg.Balance.MergeBudget, s.cfg.Balance.MoveBudget = .25, .5
	s.tasks, s.a, s.state = fleet(n), nil, nil
	for i, arg := range d.CmdArgs {
		if arg.Key == "weights" {
			for j, v := range d.CmdArgs[i].Vals {
				w, err := strconv.ParseFloat(v, 64)
				if err != nil {
					s.t.Fatal(err)
				}
				s.tasks[j].Weight = w
			}
		}
	}
	return s.play(loadbalance.Input{})
}

func (s *transcript) task(name, state string) string {
	st, err := assignment.ParseTaskState(state)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range s.tasks {
		if s.tasks[i].Name == name {
			s.tasks[i].State = st
			return ""
		}
	}
	more := fleet(len(s.tasks) + 1)
	more[len(s.tasks)].Name, more[len(s.tasks)].State = name, st
	s.tasks = append(s.tasks, more[len(s.tasks)])
	return ""
}

func (s *transcript) round(input string, membership bool) string {
	in := loadbalance.Input{MembershipOnly: membership, Elapsed: s.cfg.Balance.Interval}
	if strings.TrimSpace(input) != "" {
		var keys []keyLoad
		for line := range strings.Lines(input) {
			f := strings.Fields(line)
			k, err := assignment.ParseSliceKey((f[0] + strings.Repeat("0", 16))[:16])
			if err != nil {
				s.t.Fatal(err)
			}
			rate, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				s.t.Fatal(err)
			}
			keys = append(keys, keyLoad{k, rate})
		}
		in.Loads = measure(s.a, keys)
	}
	return s.play(in)
}

func (s *transcript) play(in loadbalance.Input) string {
	in.Prev, in.Tasks, in.Config, in.Published, in.State = s.a, s.tasks, s.cfg, s.published, s.state
	out := loadbalance.Rebalance(in)
	s.a, s.state = follow(s.t, s.a, s.tasks, out), out.State
	var b strings.Builder
	for _, d := range out.Decisions {
		fmt.Fprintf(&b, "%s: %s", d.Kind, d.Reason)
		if d.Slice.End > 0 {
			fmt.Fprintf(&b, ", %s", short(d.Slice))
		}
		if d.From != "" || d.To != "" {
			fmt.Fprintf(&b, ", %s -> %s", d.From, d.To)
		}
		if d.KeyChurn > 0 || d.LoadChurn > 0 {
			fmt.Fprintf(&b, ", keys %.4f, load %.3f", d.KeyChurn, d.LoadChurn)
		}
		b.WriteByte('\n')
	}
	st := out.Stats
	fmt.Fprintf(&b, "imbalance %.2f to %.2f, key churn %.4f, load churn %.3f\n", st.ImbalanceBefore, st.ImbalanceAfter, st.KeyChurn, st.LoadChurn)
	if s.a == nil {
		return b.String()
	}
	for slice, r := range s.a.All() {
		fmt.Fprintf(&b, "  %s", short(slice))
		for t := range r.All() {
			fmt.Fprintf(&b, " %s", t.Name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// short writes a slice without the zeros that its ends have on the right.
func short(s assignment.Slice) string {
	cut := func(k assignment.SliceKey) string {
		return (strings.TrimRight(k.String(), "0") + "00")[:max(2, len(strings.TrimRight(k.String(), "0")))]
	}
	return "[" + cut(s.Start) + "," + cut(s.End) + ")"
}
