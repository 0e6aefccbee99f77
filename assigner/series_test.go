package assigner

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A job that is deleted takes its series along and no others, and has them again when it
// is made anew; a name that no store knows has none.
func TestSeriesGoWithTheirJob(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		reg := prometheus.NewPedanticRegistry()
		n := start(Config{Registerer: reg})
		d := n.attach("d1")
		labelled := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			jobs := map[string]map[string]bool{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "job" {
							if jobs[l.GetValue()] == nil {
								jobs[l.GetValue()] = map[string]bool{}
							}
							jobs[l.GetValue()][f.GetName()] = true
						}
					}
				}
			}
			var have []string
			for job, series := range jobs {
				have = append(have, job)
				if !series["slicer_assigner_task_deaths_total"] || !series["slicer_assigner_decisions_total"] {
					t.Errorf("%s: %s has only %v", when, job, series)
				}
			}
			if slices.Sort(have); !slices.Equal(have, want) {
				t.Errorf("%s: there are series of %v, not of %v", when, have, want)
			}
		}
		make := func(job string) {
			n.put(&slicerv1.JobConfig{Name: job})
			d.preferred(job, "a1")
			d.want(&slicerv1.Want{Job: job})
			d.reports(job, true, task("t1", 1))
			time.Sleep(5 * time.Second)
			d.reports(job, false, task("t1", 1))
		}
		make("one")
		make("two")
		for _, name := range []string{"unknown-1", "unknown-2"} {
			d.want(&slicerv1.Want{Job: name})
			d.reports(name, true, task("t1", 1))
		}
		labelled("at first", "one", "two")
		dead := task("t1", 1)
		dead.State = slicerv1.TaskState_TASK_STATE_DEAD
		d.reports("one", false, dead)
		time.Sleep(5 * time.Second)
		if _, err := n.admin.DeleteJob(t.Context(), &slicerv1.DeleteJobRequest{Name: "one"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"one", "unknown-1", "unknown-2"} {
			d.want(&slicerv1.Want{Job: name, Stop: true})
		}
		time.Sleep(5 * time.Second)
		labelled("one is deleted", "two")
		make("one")
		labelled("it is made anew", "one", "two")
	})
}

// Of names that no store knows nothing is kept when the Distributor does not want them
// any more, not even where it says so before the store has answered.
func TestUnknownNamesAreForgotten(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		d := n.attach("d1")
		for i := range 100 {
			name := fmt.Sprint("unknown-", i)
			d.want(&slicerv1.Want{Job: name})
			d.want(&slicerv1.Want{Job: name, Stop: true})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if kept := len(n.runners()); kept > 0 {
			t.Errorf("%d jobs are kept", kept)
		}
	})
}
