package subscriber

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		server.Put(subscribertest.History(t, 1, 2)[1])
		r := prometheus.NewRegistry()
		var both []*Subscriber
		var gone []func()
		for range 2 {
			s := start(t, n, nil)
			await(t, s, "the newest", holds(2, Distributor))
			undo, err := Register(r, "clerk", prometheus.Labels{"job": "job"}, NewCollector("clerk", s))
			if err != nil {
				t.Fatal(err)
			}
			both, gone = append(both, s), append(gone, undo)
		}
		want := `
# HELP slicer_clerk_assignment_generation Generation of the assignment in hand, 0 if there is none.
# TYPE slicer_clerk_assignment_generation gauge
slicer_clerk_assignment_generation{clerk="0",job="job"} 2
slicer_clerk_assignment_generation{clerk="1",job="job"} 2
# HELP slicer_clerk_link 1 for the kind of server that serves at this moment: distributor or backup.
# TYPE slicer_clerk_link gauge
slicer_clerk_link{clerk="0",job="job",server="backup"} 0
slicer_clerk_link{clerk="0",job="job",server="distributor"} 1
slicer_clerk_link{clerk="1",job="job",server="backup"} 0
slicer_clerk_link{clerk="1",job="job",server="distributor"} 1
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_clerk_assignment_generation", "slicer_clerk_link"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		for i := range both {
			both[i].Close()
			gone[i]()
		}
		if got, err := r.Gather(); err != nil || len(got) != 0 {
			t.Errorf("%d families left, %v", len(got), err)
		}
	})
}
