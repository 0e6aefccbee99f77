package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/loadbalance/sim"
)

// aim is a figure of a scene and what it is wanted to be at most.
type aim struct {
	name   string
	most   float64
	format string
	of     func(s sim.Scene, r *sim.Result) float64
}

func loadAMinute(s sim.Scene, r *sim.Result) float64 { return 100 * s.Motion(r).LoadChurn }

// aims are the figures of balancing in motion, by scene.
var aims = []struct {
	scene string
	aims  []aim
}{
	{"saturated", []aim{
		{"demand in the end, of what it can", .95, "%.2f", func(s sim.Scene, r *sim.Result) float64 { return s.Motion(r).Demand }},
		{"below 1.05 for good after, s", 30, "%.0f", func(s sim.Scene, r *sim.Result) float64 { return float64(s.Motion(r).WithinMS) / 1000 }},
	}},
	{"low-rate", []aim{
		{"over floor", 1.10, "%.3f", func(s sim.Scene, r *sim.Result) float64 { return s.Motion(r).OverFloor }},
		{"load churn a minute, %", 10, "%.2f", loadAMinute},
	}},
	{"stationary", []aim{
		{"changes a minute", 1, "%.2f", func(s sim.Scene, r *sim.Result) float64 { return 12 * s.Motion(r).Changed }},
	}},
	{"steps", []aim{
		{"over floor", 1.015, "%.3f", func(s sim.Scene, r *sim.Result) float64 { return s.Motion(r).OverFloor }},
		{"load churn a minute, %", .5, "%.2f", loadAMinute},
	}},
	{"pauses", []aim{
		{"largest over floor", 1.02, "%.3f", func(s sim.Scene, r *sim.Result) float64 { return s.Motion(r).MaxOverFloor }},
		{"load churn a minute, %", .5, "%.2f", loadAMinute},
	}},
	{"drift", []aim{
		{"excess right after a round, %", .95, "%.2f", func(s sim.Scene, r *sim.Result) float64 {
			return 100 * (sim.Summarize(r.Rounds[s.Skip:], r.Tasks).MeanPostOverFloor - 1)
		}},
		{"load churn a round, %", 2.1, "%.2f", func(s sim.Scene, r *sim.Result) float64 {
			return 100 * sim.Summarize(r.Rounds[s.Skip:], r.Tasks).MeanLoadChurn
		}},
	}},
}

// tableTasks and tableSeeds are what each row of the table is played with.
var (
	tableTasks = []int{10, 20, 50}
	tableSeeds = []int{1, 2, 3}
)

// spread is the mean and the largest of a figure.
type spread struct{ sum, worst, n float64 }

func (s *spread) add(x float64) {
	s.sum += x
	s.worst = max(s.worst, x)
	s.n++
}

func (s *spread) mean() float64 { return s.sum / s.n }

// cell is a figure of weighted-move, mean and worst, and of published.
func cell(format string, most float64, own, pub spread) string {
	c := fmt.Sprintf(format+" ("+format+"), "+format, own.mean(), own.worst, pub.mean())
	if own.mean() > most {
		return "**" + c + "**"
	}
	return c
}

// BenchmarkMotion prints the table of what balancing in motion is judged by: for each row
// and number of tasks, with at most 10 replicas, the mean and in brackets the worst of
// three seeds, then the mean of published. Where the mean misses what is wanted it is in
// bold. Run it with -benchtime 1x -v.
func BenchmarkMotion(b *testing.B) {
	for b.Loop() {
		motionTable(b)
		b.Log(keysRow(b))
	}
}

// motionTable prints the rows that are scenes, each when it is known.
func motionTable(tb testing.TB) {
	tb.Log("| scene | figure | at most | 10 tasks | 20 | 50 |")
	for _, x := range aims {
		cells := make([][]string, len(x.aims))
		for _, n := range tableTasks {
			s, err := sim.FindScene(x.scene)
			if err != nil {
				tb.Fatal(err)
			}
			s.Tasks = n
			figures := map[string][]spread{weighted: make([]spread, len(x.aims)), published: make([]spread, len(x.aims))}
			for _, seed := range tableSeeds {
				for alg, f := range figures {
					c := s.Config(uint64(seed))
					c.Algorithm, c.MaxReplicas = alg, 10
					r, err := sim.Run(c, s.Open(uint64(seed)))
					if err != nil {
						tb.Fatal(err)
					}
					for i, a := range x.aims {
						f[i].add(a.of(s, r))
					}
				}
			}
			for i, a := range x.aims {
				cells[i] = append(cells[i], cell(a.format, a.most, figures[weighted][i], figures[published][i]))
			}
		}
		for i, a := range x.aims {
			tb.Logf("| %s | %s | %g | %s |", x.scene, a.name, a.most, strings.Join(cells[i], " | "))
		}
	}
}

// keysRow is the row of key churn without replicas, over all workloads at rest.
func keysRow(tb testing.TB) string {
	const most = 25
	var cells []string
	for _, n := range tableTasks {
		var own, pub spread
		for _, seed := range tableSeeds {
			s := setting{strings.Split("bcdefgh", ""), []int{n}, 1, 1, 288, 0, seed}
			p, _ := s.means(tb, published)
			w, _ := s.means(tb, weighted)
			own.add(100 * w.MeanKeyChurn / p.MeanKeyChurn)
			pub.add(100)
		}
		cells = append(cells, cell("%.0f", most, own, pub))
	}
	return fmt.Sprintf("| at rest, one replica | key churn, %% of published's | %d | %s |", most, strings.Join(cells, " | "))
}

// BenchmarkDrift tells how much of the excess under drift, right after a round, is for the
// band and how much for what measurements are off: as it is, without noise, and both with
// narrower bands, for 10, 20 and 50 tasks. Run it with -benchtime 1x -v.
func BenchmarkDrift(b *testing.B) {
	s, err := sim.FindScene("drift")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for _, start := range []float64{1.03, 1.02, 1.01} {
			for _, noise := range []sim.Noise{s.Config(1).Noise, {}} {
				var cells []string
				for _, n := range tableTasks {
					s.Tasks = n
					c := s.Config(1)
					c.Algorithm, c.MaxReplicas, c.Noise = weighted, 10, noise
					c.Balance.BandStart, c.Balance.BandStop = start, 1+(start-1)/4
					r, err := sim.Run(c, s.Open(1))
					if err != nil {
						b.Fatal(err)
					}
					x := sim.Summarize(r.Rounds[s.Skip:], n)
					cells = append(cells, fmt.Sprintf("%.2f, %.2f", 100*(x.MeanPostOverFloor-1), 100*x.MeanLoadChurn))
				}
				b.Logf("| band from %g | noise %t | %s |", start, noise.Poisson, strings.Join(cells, " | "))
			}
		}
	}
}
