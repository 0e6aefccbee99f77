package assigner

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (d *raw) clients(complete bool, cs ...*slicerv1.Client) {
	d.t.Helper()
	d.say(&slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_Clients{Clients: &slicerv1.Clients{Job: "job", Complete: complete, Clients: cs}}})
	synctest.Wait()
}

func (d *raw) indexed(what string, want map[string]uint32) {
	d.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !maps.Equal(d.indexes, want) {
		d.t.Errorf("%s: %v, want %v", what, d.indexes, want)
	}
}

func fresh(id string) *slicerv1.Client { return &slicerv1.Client{ClientId: id} }

func holder(id string, index uint32, age time.Duration) *slicerv1.Client {
	return &slicerv1.Client{ClientId: id, Index: &index, AgeMs: age.Milliseconds()}
}

// Clients get indexes from their job's preferred assigner; the next one learns
// them from the clients.
func TestClientIndexes(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		registry := prometheus.NewRegistry()
		n := start(Config{Registerer: registry})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d, e := n.attach("d1"), n.attach("d2")
		d.preferred("job", "a1")
		d.clients(true, fresh("x"), fresh("y"))
		e.clients(true)
		d.indexed("before it has settled", map[string]uint32{})
		time.Sleep(9 * time.Second)
		d.indexed("then", map[string]uint32{"x": 0, "y": 1})
		e.clients(false, fresh("z"))
		e.indexed("at the other Distributor", map[string]uint32{"z": 2})
		// y goes from one to the other, which knows its index from y's hello.
		d.clients(false, &slicerv1.Client{ClientId: "y", Disconnected: true})
		e.clients(false, holder("y", 1, 0))
		e.indexed("nothing has to be said", map[string]uint32{"z": 2})
		want := `
# HELP slicer_assigner_client_indexes Highest client index in use, and 1: above the number of clients by the holes that leavers have left.
# TYPE slicer_assigner_client_indexes gauge
slicer_assigner_client_indexes{assigner="a1",job="job"} 3
# HELP slicer_assigner_clients Connected clients of jobs that this assigner is preferred for, by whether they have been given an index.
# TYPE slicer_assigner_clients gauge
slicer_assigner_clients{assigner="a1",indexed="false",job="job"} 0
slicer_assigner_clients{assigner="a1",indexed="true",job="job"} 3
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "slicer_assigner_client_indexes", "slicer_assigner_clients"); err != nil {
			t.Error(err)
		}
		// The Distributors attach anew; one brings a client that is older than x.
		d.close()
		e.close()
		time.Sleep(10 * time.Second)
		d, e = n.attach("d1"), n.attach("d2")
		d.preferred("job", "a1")
		d.clients(true, holder("x", 0, time.Minute), fresh("v"))
		e.clients(true, holder("y", 1, time.Minute), holder("z", 2, time.Second), holder("w", 0, time.Hour))
		time.Sleep(31 * time.Second)
		d.indexed("after it", map[string]uint32{"v": 4, "x": 3})
		e.indexed("after it", map[string]uint32{})
		// A minute after z has gone its index is free.
		e.clients(false, &slicerv1.Client{ClientId: "z", Disconnected: true})
		time.Sleep(61 * time.Second)
		e.clients(false, fresh("u"))
		e.indexed("freed", map[string]uint32{"u": 2})
	})
}

func TestManyClients(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d := n.attach("d1")
		d.preferred("job", "a1")
		want := make(map[string]uint32)
		var all []*slicerv1.Client
		for i := range 10000 {
			id := fmt.Sprintf("%0100d", i) // long ids, in order
			all, want[id] = append(all, fresh(id)), uint32(i)
		}
		d.clients(true, all...)
		time.Sleep(9 * time.Second)
		d.indexed("all", want)
		for _, k := range d.grants {
			if k > 4096 {
				t.Errorf("%d indexes in one message", k)
			}
		}
	})
}
