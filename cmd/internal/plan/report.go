package plan

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/slicer-project/slicer/deploy/plot"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

// fewRounds is below which a replay says little.
const fewRounds = 10

// maxTitle is how long a file's name fits into the title of a plot.
const maxTitle = 50

// print is the answer for people.
func (s *simulation) print(w io.Writer, results []*sim.Result, skipped int) error {
	rounds := results[0].Rounds
	fmt.Fprintf(w, "%s: %s of %s, %s, %s\n", s.subject(), count(len(rounds), "round"), span(s.interval), count(s.tasks, "task"), s.replicas())
	requests, busiest, floor := 0.0, 0.0, 0.0
	for _, r := range rounds {
		requests += r.Requests
		busiest = max(busiest, r.Requests)
		floor += r.Floor / float64(len(rounds))
	}
	seconds := s.interval.Seconds()
	fmt.Fprintf(w, "load %s in all, %s/s on the mean task in the busiest round; mean floor %.3f\n", number(requests), number(busiest/seconds/float64(s.tasks)), floor)
	if skipped > 0 {
		fmt.Fprintf(w, "%s left out\n", lacking(skipped))
	}
	switch {
	case len(rounds) >= fewRounds || s.trace == "":
	case s.interval > sim.MinInterval:
		fmt.Fprintln(w, "so few rounds say little: choose a shorter --interval")
	default:
		fmt.Fprintln(w, "so few rounds say little: take a longer trace")
	}
	fmt.Fprintln(w)
	if s.scene != "" {
		return printMotion(w, results)
	}
	if len(results) == 1 {
		return s.printOne(w, results[0])
	}
	table := [][]string{{"algorithm", "imbalance", "p95", "max", "over floor", "rest", "key churn", "load churn", "changed", "slices/task", "peak/s"}}
	for _, r := range results {
		m := r.Summary
		table = append(table, []string{
			r.Algorithm, fmt.Sprintf("%.3f", m.MeanImbalance), fmt.Sprintf("%.3f", m.P95Imbalance), fmt.Sprintf("%.3f", m.MaxImbalance),
			fmt.Sprintf("%.3f", m.MeanOverFloor), fmt.Sprintf("%.3f", m.MeanRest), percent(m.MeanKeyChurn), percent(m.MeanLoadChurn), percent(m.ChangedRounds),
			number(m.MaxSlicesPerTask), number(s.peak(r.Rounds).load),
		})
	}
	return printTable(w, table)
}

func (s *simulation) printOne(w io.Writer, r *sim.Result) error {
	m, p := r.Summary, s.peak(r.Rounds)
	fmt.Fprintf(w, `%s
  imbalance   %.3f on average, above %.3f in one round of twenty, %.3f at most, %.3f in the end
  over floor  %.3f; %.3f right after deciding
  rest        %.3f
  key churn   %s a round, load churn %s; %s of the rounds changed something
  slices      at most %s a task
  peak        %s/s on one task, in the round that began %s
`, r.Algorithm, m.MeanImbalance, m.P95Imbalance, m.MaxImbalance, m.FinalImbalance, m.MeanOverFloor, m.MeanPostOverFloor, m.MeanRest,
		percent(m.MeanKeyChurn), percent(m.MeanLoadChurn), percent(m.ChangedRounds), number(m.MaxSlicesPerTask), number(p.load), s.moment(p.startMS))
	return nil
}

// printMotion is the answer about a scene.
func printMotion(w io.Writer, results []*sim.Result) error {
	head := []string{"algorithm", "over floor", "max", "key churn/min", "load churn/min", "changed"}
	first := results[0].Motion
	shifts, limited := len(first.RecoveredMS) > 0, first.Demand > 0
	if shifts {
		head = append(head, "half <1.2", ".9 <1.2")
	}
	if limited {
		head = append(head, "<1.05 after", "demand")
	}
	table := [][]string{head}
	for _, r := range results {
		m := r.Motion
		row := []string{r.Algorithm, fmt.Sprintf("%.3f", m.OverFloor), fmt.Sprintf("%.3f", m.MaxOverFloor), percent(m.KeyChurn), percent(m.LoadChurn), percent(m.Changed)}
		if shifts {
			row = append(row, span(m.Recovered(.5)), span(m.Recovered(.9)))
		}
		if limited {
			row = append(row, span(time.Duration(m.WithinMS)*time.Millisecond), fmt.Sprintf("%.2f", m.Demand))
		}
		table = append(table, row)
	}
	return printTable(w, table)
}

// peak is the most that one task had to bear.
type peak struct {
	load    float64 // a second
	startMS int64
}

// peak leaves out the first round, under an assignment that knew of no load.
func (s *simulation) peak(rounds []sim.Round) (p peak) {
	for i, r := range rounds {
		load := r.Requests * r.Imbalance / float64(s.tasks) / s.interval.Seconds()
		if load > p.load && (i > 0 || len(rounds) == 1) {
			p = peak{load, r.StartMS}
		}
	}
	return p
}

// lacking counts the lines of a log whose requests name no path.
func lacking(skipped int) string { return count(skipped, "line") + " of the log without a path" }

// replicas says how many owners a slice may have: there are not more than tasks.
func (s *simulation) replicas() string {
	most := min(s.maxReplicas, s.tasks)
	if s.minReplicas == most {
		return count(most, "replica")
	}
	return fmt.Sprintf("%d to %s", s.minReplicas, count(most, "replica"))
}

func (s *simulation) subject() string {
	if s.workload != "" {
		return "workload " + s.workload + " (" + sim.Workloads[s.workload] + ")"
	}
	if s.scene != "" {
		return "scene " + s.scene + " (" + s.motion.About + ")"
	}
	if s.trace == stdin {
		return "standard input"
	}
	return s.trace
}

// moment prints a time of the source: a date if it can be one.
func (s *simulation) moment(ms int64) string {
	if day := int64(86_400_000); s.trace != "" && ms > 365*day {
		return time.UnixMilli(ms).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("at %s", span(time.Duration(ms)*time.Millisecond))
}

// span prints a duration without units that are zero.
func span(d time.Duration) string {
	s := d.String()
	if d >= time.Minute {
		s = strings.Replace(s, "m0s", "m", 1)
	}
	if d >= time.Hour {
		s = strings.Replace(s, "h0m", "h", 1)
	}
	return s
}

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// figure draws imbalance and both churns over time.
func (s *simulation) figure(results []*sim.Result) plot.Figure {
	note := fmt.Sprintf("%s, %s of %s, %s", count(s.tasks, "task"), count(len(results[0].Rounds), "round"), span(s.interval), s.replicas())
	if n := plot.Averaged(len(results[0].Rounds)); n > 1 {
		note += fmt.Sprintf("; means of %d rounds", n)
	}
	title := "workload " + s.workload
	if s.scene != "" {
		title = "scene " + s.scene
	}
	if s.trace != "" {
		title = filepath.Base(s.subject())
		if r := []rune(title); len(r) > maxTitle {
			title = string(r[:maxTitle-3]) + "..."
		}
	}
	imbalance := plot.Panel{YLabel: "max / mean task load", LogY: true}
	churn := plot.Panel{YLabel: "key churn, % a round"}
	load := plot.Panel{YLabel: "load churn, % a round"}
	unit, name := timeUnit(results[0].Rounds)
	load.XLabel = "time since the start, " + name
	floor := plot.Series{Name: "floor"}
	for _, r := range results {
		var x, y, k, l []float64
		for i, round := range r.Rounds {
			x = append(x, float64(round.StartMS-r.Rounds[0].StartMS)/unit)
			y = append(y, round.Imbalance)
			k = append(k, 100*round.KeyChurn)
			l = append(l, 100*round.LoadChurn)
			if len(floor.Y) < len(r.Rounds) {
				floor.X, floor.Y = append(floor.X, x[i]), append(floor.Y, round.Floor)
			}
		}
		if len(x) == 1 { // a point would not be seen
			x, y, k, l = append(x, float64(s.intervalMS())/unit), append(y, y[0]), append(k, k[0]), append(l, l[0])
			floor.X, floor.Y = x, []float64{floor.Y[0], floor.Y[0]}
		}
		strong := r.Algorithm == s.algorithm
		imbalance.Series = append(imbalance.Series, plot.Series{Name: r.Algorithm, X: x, Y: y, Strong: strong})
		churn.Series = append(churn.Series, plot.Series{Name: r.Algorithm, X: x, Y: k, Strong: strong})
		load.Series = append(load.Series, plot.Series{Name: r.Algorithm, X: x, Y: l, Strong: strong})
	}
	imbalance.Series = append(imbalance.Series, floor)
	return plot.Figure{Title: "Load imbalance and churn of " + title, Notes: []string{note}, Panels: []plot.Panel{imbalance, churn, load}}
}

// timeUnit suits the length of a replay; in milliseconds.
func timeUnit(rounds []sim.Round) (float64, string) {
	if len(rounds) == 0 {
		return 1000, "s"
	}
	switch span := rounds[len(rounds)-1].StartMS - rounds[0].StartMS; {
	case span > 4*86_400_000:
		return 86_400_000, "days"
	case span > 3*3_600_000:
		return 3_600_000, "hours"
	case span > 5*60_000:
		return 60_000, "min"
	}
	return 1000, "s"
}
