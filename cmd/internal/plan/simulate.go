package plan

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

// simulation is what the flags of simulate say.
type simulation struct {
	trace, workload, scene   string
	motion                   sim.Scene // that of the name
	tasks                    int
	interval                 time.Duration
	minReplicas, maxReplicas int
	algorithm                string
	all                      bool
	seed                     uint64
	noise                    float64
	plot                     string
}

// The noise of a task as a whole is less than that of a slice by this factor,
// as in sim.DefaultNoise.
const taskNoise = .4

// perSecond is how many requests generated workloads have.
const perSecond = 8000

// Simulate returns "slicerctl simulate". asJSON is where --json ends up.
func Simulate(asJSON *bool) *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use:   "simulate (--trace FILE | --workload a..h | --scene NAME) [flags]",
		Short: "Replay traffic through sharding algorithms, to plan capacity; needs no server",
		Long: `Replays a trace of your traffic, a generated workload or scene, through Slicer's sharding
and through what you might use instead. Answers how evenly a number of tasks would
share the load, what the hottest would have to bear, and how many keys would move.

A TRACE is a CSV file of three columns, gzipped or not, in order of time:

  unix_ms,key,load
  1431857100000,user/4711,1

where unix_ms is in milliseconds, since 1970 or since a start of the trace's own, key
is what you would shard by, and load counts requests or whatever they cost (CPU
milliseconds, bytes). An Apache or nginx access log in common or combined format
is taken as it is: a load of 1 on each request's path. A trace may come through a
pipe, - being standard input; without --interval it is kept in a temporary file, as it
is read twice. Give rotated logs OLDEST FIRST:

  cat access.log.2 access.log.1 access.log | slicerctl simulate --trace -

Records may be out of order by an interval, or a minute if that is longer, as servers
write them when requests end. Those that come later than that and malformed lines of a
log are left out and counted on standard error; if either are more than ten and more
than 1%, the replay fails and names the first. A CSV file has to be right otherwise.
To shard by something else than the path, print it from the log. By client address, of
lines that have a time in UTC as field 4:

  TZ=UTC awk '{ split(substr($4, 2), t, /[\/:]/)
         m = (index("JanFebMarAprMayJunJulAugSepOctNovDec", t[2]) + 2) / 3
         print mktime(t[3]" "m" "t[1]" "t[4]" "t[5]" "t[6]) "000," $1 ",1" }' access.log > clients.csv

Keys are hashed at once, so a trace may as well hold hashes or pseudonyms of them.

The time of the trace is cut into ROUNDS of --interval, five minutes unless the trace
is so short that a hundred of them would not fit: then shorter ones, a round number
of about a hundredth of it. Each round's load is served
under the assignment that was in force, measured with the noise that real metering
has, and answered by a new assignment. All tasks are equal and none dies. Choose
rounds so long that each sees many requests a task; windows without any are left out.

READING THE ANSWER

  imbalance   load of the hottest task over that of the mean task, during a round
  floor       the least imbalance that any assignment of whole keys could have: a key
              with a quarter of all load on at most two of ten tasks makes it 1.25
  over floor  mean of imbalance / floor: 1 is perfect
  rest        imbalance right after a round's decision, among tasks without a key that
              alone is more than a mean task's load
  key churn   share of the keyspace that a round gave to tasks that did not own it:
              what caches lose. load churn: share of the load, for the same reason
  changed     share of the rounds that changed slices or owners: as many generations
              are written and sent
  peak        the most load a second that one task had, as the mean over a round. The
              first round, which is served before anything was measured, does not
              count unless it is the only one

PROVISION EACH TASK FOR THE PEAK, and for what your rounds average away: replay once
more with a shorter --interval. If the peak is above what a task can bear, try more
--tasks. Once more tasks do not lower it, single keys are too hot: more --max-replicas
help, or finer keys. If imbalance is near the floor and the floor far above 1, no
algorithm can do better.

ALGORITHMS

  weighted-move    Slicer's own, the default of jobs
  published        the algorithm of the Slicer paper, section 4.4.1
  static           100 equal slices a task, dealt out once; never replicates
  consistent-hash  100 points a task on a hash ring; never replicates
  bounded-load     the same where no task takes more than 1.25 mean loads
  load-aware       the same whose tasks have more or fewer points by their load

Only the first two heed --min-replicas.

TIME that a round takes grows with the slices, about 100 a task, and with their owners:
milliseconds with 100 tasks, tenths of a second with 1,000, seconds with half a million
owners, such as of 100 tasks with --min-replicas 50. --all and --plot replay all six.

WORKLOADS are of 288 rounds, a day by default, and 8,000 requests a second:

` + workloads() + `
SCENES are what balancing does in motion, each in some minutes, with its own tasks and
rounds: 20, of 5 s, and 400 requests/s a task unless they say otherwise.

` + scenes() + `
Of a scene the answer has key churn, load churn and changed rounds a minute, without
the first minutes; in how long half and nine tenths of shifts of hot keys are below 1.2
of the floor; or when the imbalance is below 1.05 of it for good, and the largest
demand of a task in the end, as a share of what it can carry.

--json prints one object for the algorithm, with --all an array of them in the order
above:

  {"algorithm", "tasks",
   "rounds": [{"start_ms", "requests", "imbalance", "post", "floor", "rest",
     "key_churn", "load_churn", "moves", "changed", "splits", "merges",
     "slices", "replicas", "decide_ms"}],
   "summary": {"mean_imbalance", "p95_imbalance", "max_imbalance", "final_imbalance",
     "mean_over_floor", "mean_post_over_floor", "mean_rest", "mean_key_churn",
     "mean_load_churn", "max_slices_per_task", "changed_rounds"}}

where post is the imbalance of the round's load under the assignment that was decided
after it, and moves counts changes of owners, whatever the algorithm: an owner that came
for one that went, came besides or went, of each piece of the keyspace within one slice
before and after. Of a scene there is "motion" besides: {"over_floor", "max_over_floor",
"key_churn_minute", "load_churn_minute", "changed_rounds", "recovered_ms", "within_ms",
"demand"}, "recovered_ms" and "demand" where they apply, the latter in rounds too. Shares are of 1. All but decide_ms follow from the arguments.`,
		Example: `  slicerctl simulate --trace access.log --tasks 10 --interval 10m
  slicerctl simulate --trace access.log.gz --tasks 10 --interval 1h --all --plot load.svg
  slicerctl simulate --trace clients.csv.gz --tasks 50 --max-replicas 1 --json
  slicerctl simulate --workload e --tasks 20 --all
  slicerctl simulate --scene flash-crowd --all`,
		Args: run.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			return explain(s.run(cmd, *asJSON), cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&s.trace, "trace", "", "replay `FILE`, or - for standard input: CSV of unix_ms,key,load or an access log, gzipped or not")
	fs.StringVar(&s.workload, "workload", "", "replay a generated workload, `a..h`")
	fs.StringVar(&s.scene, "scene", "", "replay the generated scene of this `NAME`: "+strings.Join(sim.SceneNames(), ", "))
	fs.IntVar(&s.tasks, "tasks", 10, "how many tasks share the load")
	fs.DurationVar(&s.interval, "interval", 5*time.Minute, "length of a round in the trace's time, such as 10s or 1h, 100ms to 1h; shorter by default if the trace is less than 100 rounds long")
	fs.IntVar(&s.minReplicas, "min-replicas", 1, "tasks that each slice has at least; not above --tasks")
	fs.IntVar(&s.maxReplicas, "max-replicas", 10, "tasks that a slice may have at most; not below --min-replicas")
	fs.StringVar(&s.algorithm, "algorithm", sim.WeightedMove, "one of "+strings.Join(sim.Algorithms, ", ")+"; what --plot emphasizes")
	fs.BoolVar(&s.all, "all", false, "compare all algorithms")
	fs.Uint64Var(&s.seed, "seed", 1, "seed of the noise and of the workload")
	fs.Float64Var(&s.noise, "noise", sim.DefaultNoise.Slice, "standard deviation of the measured load of a slice, as a share of it, 0 to 1; 0 measures exactly")
	fs.StringVar(&s.plot, "plot", "", "draw imbalance and churn over time, of all algorithms, into `FILE.svg`")
	complete(cmd, "algorithm", sim.Algorithms)
	complete(cmd, "workload", workloadNames())
	complete(cmd, "scene", sim.SceneNames())
	return cmd
}

func complete(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag: a mistake in this package
	}
}

func workloadNames() []string {
	var names []string
	for n := range sim.Workloads {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func workloads() string {
	var b strings.Builder
	for _, n := range workloadNames() {
		b.WriteString("  " + n + "  " + sim.Workloads[n] + "\n")
	}
	return b.String()
}

func scenes() string {
	var b strings.Builder
	for _, s := range sim.Scenes {
		fmt.Fprintf(&b, "  %-12s %s\n", s.Name, s.About)
	}
	return b.String()
}

// stage takes from the scene, if one is replayed, what it says.
func (s *simulation) stage(cmd *cobra.Command) (err error) {
	if !cmd.Flags().Changed("scene") {
		return nil
	}
	if s.motion, err = sim.FindScene(s.scene); err != nil {
		return explain(err, cmd)
	}
	for _, flag := range []string{"tasks", "interval"} {
		if cmd.Flags().Changed(flag) {
			return run.Usagef("simulate: a scene has its own --%s", flag)
		}
	}
	s.tasks, s.interval = s.motion.Tasks, s.motion.Interval
	return nil
}

// check finds what is wrong with the flags before anything is read.
func (s *simulation) check(cmd *cobra.Command) error {
	given := 0
	for _, what := range []string{"trace", "workload", "scene"} {
		if cmd.Flags().Changed(what) {
			given++
		}
	}
	if given != 1 {
		return run.Usagef("simulate: want one of --trace FILE, --workload a..h and --scene NAME")
	}
	if err := s.stage(cmd); err != nil {
		return err
	}
	if !cmd.Flags().Changed("max-replicas") {
		s.maxReplicas = max(s.maxReplicas, s.minReplicas)
	}
	for _, err := range []error{
		check(!cmd.Flags().Changed("workload") || sim.Workloads[s.workload] != "", "workload", s.workload, "one of a to h"),
		check(s.tasks >= 1 && s.tasks <= assignment.MaxTasks, "tasks", s.tasks, fmt.Sprintf("1 to %d", assignment.MaxTasks)),
		check(s.interval >= sim.MinInterval && s.interval <= sim.MaxInterval && s.interval%time.Millisecond == 0, "interval", s.interval.String(), "100ms to 1h, in whole milliseconds"),
		check(s.minReplicas >= 1 && s.minReplicas <= assignment.MaxReplicas, "min-replicas", s.minReplicas, fmt.Sprintf("1 to %d", assignment.MaxReplicas)),
		check(s.minReplicas <= s.tasks, "min-replicas", s.minReplicas, fmt.Sprintf("at most %d (--tasks)", s.tasks)),
		check(s.maxReplicas >= s.minReplicas && s.maxReplicas <= assignment.MaxReplicas, "max-replicas", s.maxReplicas, fmt.Sprintf("%d (--min-replicas) to %d", s.minReplicas, assignment.MaxReplicas)),
		check(slices.Contains(sim.Algorithms, s.algorithm), "algorithm", s.algorithm, "one of "+strings.Join(sim.Algorithms, ", ")),
		check(s.noise >= 0 && s.noise <= 1 && !math.IsNaN(s.noise), "noise", s.noise, "0 to 1"),
		checkPlot(cmd, s.plot),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *simulation) intervalMS() int64 { return s.interval.Milliseconds() }

// source opens what is replayed. The input is to be closed, and nil for a workload,
// as the reader is.
func (s *simulation) source(cmd *cobra.Command) (src sim.Source, in *input, r *sim.TraceReader, err error) {
	if s.scene != "" {
		return s.motion.Open(s.seed), nil, nil, nil
	}
	if s.workload != "" {
		src, err = sim.Workload{
			Name: s.workload, Tasks: s.tasks, IntervalMS: s.intervalMS(), Seed: s.seed,
			Requests: perSecond * float64(s.intervalMS()) / 1000,
		}.Open()
		return src, nil, nil, err
	}
	ctx := cmd.Context()
	if in, err = openInput(s.trace, cmd.InOrStdin()); err != nil {
		return nil, nil, nil, err
	}
	if !cmd.Flags().Changed("interval") {
		err = in.twice(ctx, maxSpool, func() error { return s.fit(ctx, in) })
	}
	if err == nil {
		r, err = in.trace(ctx)
	}
	if err == nil {
		src, err = sim.Windows(r, s.intervalMS())
	}
	return src, in, r, err
}

func (s *simulation) config(algorithm string) sim.Config {
	c := sim.Config{Tasks: s.tasks, IntervalMS: s.intervalMS(), Seed: s.seed}
	if s.scene != "" {
		c = s.motion.Config(s.seed)
	}
	c.Algorithm, c.MinReplicas, c.MaxReplicas, c.Clock = algorithm, s.minReplicas, s.maxReplicas, time.Now
	// The loads of a trace are counts already; those of a workload are means.
	c.Noise.Slice, c.Noise.Task, c.Noise.Poisson = s.noise, s.noise*taskNoise, s.trace == "" && s.noise > 0
	return c
}

// run replays and prints.
func (s *simulation) run(cmd *cobra.Command, asJSON bool) error {
	algorithms := []string{s.algorithm}
	if s.all || s.plot != "" {
		algorithms = sim.Algorithms
	}
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	src, in, trace, err := s.source(cmd)
	defer in.close()
	if err != nil {
		return err
	}
	p := newProgress(terminal(errs))
	results, err := replay(cmd.Context(), src, algorithms, s.config, p.round)
	p.end()
	if err != nil {
		return err
	}
	skipped := 0
	if trace != nil {
		skipped = trace.Skipped
		for _, left := range []*sim.LeftOut{&trace.Malformed, &trace.Early} {
			if left.Count > 0 {
				fmt.Fprintf(errs, "slicerctl: %v\n", left)
			}
		}
	}
	if len(results[0].Rounds) == 0 {
		if skipped > 0 {
			return fmt.Errorf("%s: nothing to replay: %s", in.name, lacking(skipped))
		}
		return fmt.Errorf("%s: the trace is empty", in.name)
	}
	if s.plot != "" {
		if err := s.figure(results).WriteFile(s.plot); err != nil {
			return err
		}
	}
	if !s.all {
		results = results[slices.Index(algorithms, s.algorithm):][:1]
	}
	if s.scene != "" {
		for _, r := range results {
			m := s.motion.Motion(r)
			r.Motion = &m
		}
	}
	if asJSON {
		if s.all {
			return printJSON(out, results)
		}
		return printJSON(out, results[0])
	}
	return s.print(out, results, skipped)
}

// terminal is w if it is one, otherwise nil.
func terminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return f
	}
	return nil
}
