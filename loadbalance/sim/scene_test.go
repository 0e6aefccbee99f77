package sim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/sim"
)

// motion replays a scene.
func motion(tb testing.TB, s sim.Scene, algorithm string, replicas int, seed uint64) sim.Motion {
	tb.Helper()
	c := s.Config(seed)
	c.Algorithm, c.MaxReplicas = algorithm, replicas
	r, err := sim.Run(c, s.Open(seed))
	if err != nil {
		tb.Fatal(err)
	}
	m := s.Motion(r)
	tb.Logf("%-11s %-13s over floor %.3f, at most %.3f; %6.3f %% of the keys, %6.2f %% of the load a minute; %3.0f %% of the rounds change something; shifts %s, %s; below 1.05 after %d s, demand %.2f",
		s.Name, algorithm, m.OverFloor, m.MaxOverFloor, 100*m.KeyChurn, 100*m.LoadChurn, 100*m.Changed, m.Recovered(.5), m.Recovered(.9), m.WithinMS/1000, m.Demand)
	return m
}

// atMost are the limits of weighted-move in each scene.
var atMost = map[string]sim.Motion{
	"stationary":  {OverFloor: 1.03, MaxOverFloor: 1.04, LoadChurn: .004, Changed: 1. / 12},
	"low-rate":    {OverFloor: 1.10, LoadChurn: .10},
	"steps":       {OverFloor: 1.025, LoadChurn: .005},
	"pauses":      {MaxOverFloor: 1.04, LoadChurn: .005},
	"saturated":   {WithinMS: 45_000, Demand: .95},
	"flash-crowd": {OverFloor: 1.29, LoadChurn: .18},
}

// judgeMotion asserts them.
func judgeMotion(tb testing.TB, scene string, m sim.Motion) {
	tb.Helper()
	most, ok := atMost[scene]
	if !ok {
		return
	}
	for _, x := range []struct {
		name      string
		got, most float64
	}{
		{"over floor", m.OverFloor, most.OverFloor},
		{"largest over floor", m.MaxOverFloor, most.MaxOverFloor},
		{"load churn a minute", m.LoadChurn, most.LoadChurn},
		{"share of rounds that change something", m.Changed, most.Changed},
		{"milliseconds until below 1.05 of the floor", float64(m.WithinMS), float64(most.WithinMS)},
		{"demand", m.Demand, most.Demand},
	} {
		if x.most > 0 && !(x.got <= x.most) {
			tb.Errorf("%s: %s is %.4f, want at most %.4f", scene, x.name, x.got, x.most)
		}
	}
}

// BenchmarkScenes is the table of figures of balancing in motion. Run it with
// -benchtime 1x.
func BenchmarkScenes(b *testing.B) {
	for _, s := range sim.Scenes {
		b.Run(s.Name, func(b *testing.B) {
			for b.Loop() {
				judgeMotion(b, s.Name, motion(b, s, weighted, 10, 1))
				motion(b, s, published, 10, 1)
			}
		})
	}
}

// TestMotion plays the scenes that have limits.
func TestMotion(t *testing.T) {
	for _, s := range sim.Scenes {
		if _, ok := atMost[s.Name]; ok {
			judgeMotion(t, s.Name, motion(t, s, weighted, 10, 2))
		}
	}
}

func TestFindScene(t *testing.T) {
	for _, name := range sim.SceneNames() {
		if s, err := sim.FindScene(name); err != nil || s.Name != name || s.About == "" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	_, err := sim.FindScene("x")
	if fe := (*assignment.FieldError)(nil); !errors.As(err, &fe) || fe.Field != "scene" || !strings.Contains(fe.Error(), "flash-crowd") {
		t.Errorf("%v", err)
	}
}

// What a task cannot carry is not measured, and a task that came later is another one.
func TestScenes(t *testing.T) {
	for _, s := range sim.Scenes {
		if s.Name == "drift" || s.Name == "pareto" { // they take long
			continue
		}
		s.Rounds = 84
		m := motion(t, s, published, 10, 1)
		if !(m.OverFloor >= 1 && m.MaxOverFloor >= m.OverFloor && m.KeyChurn > 0 && m.LoadChurn > 0 && m.Changed > 0 && m.Changed <= 1) {
			t.Errorf("%s: %+v", s.Name, m)
		}
		if (m.Demand > 0) != (s.Name == "saturated") || (len(m.RecoveredMS) > 0) != (s.Name == "flash-crowd") {
			t.Errorf("%s: %+v", s.Name, m)
		}
	}
}
