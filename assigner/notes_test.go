package assigner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// That tasks vanish is counted, shown while it lasts, and in the history; so is a
// freeze by an operator, apart from it.
func TestFreezesAreTold(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		reg := prometheus.NewPedanticRegistry()
		n := start(Config{Registerer: reg})
		n.put(&slicerv1.JobConfig{Name: "job", Freeze: &slicerv1.FreezeConfig{ForMs: 30_000}})
		d := n.attach("d1")
		d.preferred("job", "a1")
		d.want(&slicerv1.Want{Job: "job"})
		var all []*slicerv1.Task
		for _, name := range []string{"t1", "t2", "t3", "t4", "t5", "t6"} {
			all = append(all, task(name, 1))
		}
		show := func(when string, freezes, byAssigner, byOperator int) {
			t.Helper()
			synctest.Wait()
			want := fmt.Sprintf(`# HELP slicer_assigner_freezes_total Times that the assigner has frozen a job by itself, because too many tasks fell silent at once.
# TYPE slicer_assigner_freezes_total counter
slicer_assigner_freezes_total{assigner="a1",job="job"} %d
# HELP slicer_assigner_frozen 1 while a job is frozen: by the assigner, because too many tasks fell silent at once, or by an operator.
# TYPE slicer_assigner_frozen gauge
slicer_assigner_frozen{assigner="a1",by="assigner",job="job"} %d
slicer_assigner_frozen{assigner="a1",by="operator",job="job"} %d
`, freezes, byAssigner, byOperator)
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "slicer_assigner_freezes_total", "slicer_assigner_frozen"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		d.reports("job", true, all...)
		d.beat(5, all...)
		show("at first", 0, 0, 0) // there to be increased
		d.beat(8, all[:2]...)
		show("when they vanish", 1, 1, 0)
		d.beat(40, all[:2]...)
		d.holds("job", "the living", ownedBy("t1", "t2"))
		show("when they are dead", 1, 0, 0)
		if _, err := n.admin.GiveOrder(t.Context(), &slicerv1.GiveOrderRequest{Job: "job", Who: "ada",
			Order: &slicerv1.GiveOrderRequest_Freeze{Freeze: &slicerv1.FreezeOrder{ForMs: 60_000}}}); err != nil {
			t.Fatal(err)
		}
		d.beat(10, all[:2]...)
		show("frozen by order", 1, 0, 1)
		d.beat(60, all[:2]...)
		show("after its time", 1, 0, 0)

		h, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "job"})
		if err != nil {
			t.Fatal(err)
		}
		var done []string
		last := int64(0)
		for _, e := range h.Entries {
			switch s := e.Stamp; {
			case e.Action != "":
				done = append(done, fmt.Sprintf("%s: %s: %s", s.Who, e.Action, s.Why))
			case strings.Contains(s.Why, "t3 dead"):
				done = append(done, "failover")
			}
			if e.Order < last || time.UnixMilli(e.Stamp.UnixMs).Year() < 2000 {
				t.Errorf("entry out of order: %v", e)
			}
			last = e.Order
		}
		want := []string{
			": create job: freeze.for: 3m -> 30s: ",
			"assigner a1: freeze by the assigner itself: 4 of 6 tasks fell silent within 10s: none is declared dead for 30s, or until they return",
			"assigner a1: end of the assigner's own freeze: after 30s: 4 tasks are still silent, and taken for dead",
			"failover",
			"ada: freeze for 1m0s: ",
			"assigner a1: end of the freeze: its 1m0s have passed",
		}
		if !slices.Equal(done, want) {
			t.Errorf("the history is\n%s", strings.Join(done, "\n"))
		}
	})
}
