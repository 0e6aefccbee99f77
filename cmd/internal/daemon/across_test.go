package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

// TestInspectAcross: on etcd, when a change is over, slicerctl inspect counts no reader as
// not across, since there is nothing to cross.
func TestInspectAcross(t *testing.T) {
	endpoints := etcdtest.NewCluster(t, 1).Endpoints()
	a := runtest.Start(t, "assigner", "--store=etcd://"+endpoints[0]+"/slicer", "--listen=127.0.0.1:0", "--http=127.0.0.1:0")
	d := runtest.Start(t, "distributor", "--assigners="+a.Where()["listen"], "--listen=127.0.0.1:0", "--http=127.0.0.1:0").Where()
	becomesReady(t, d["http"])
	file := jobsFile(t)
	until(t, "jobs are made", func() bool {
		code, _, _ := slicerctl(t, "--server="+d["listen"], "job", "apply", "-f", file)
		return code == 0
	})
	for _, name := range []string{"a", "b"} {
		leases, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: endpoints})
		if err != nil {
			t.Fatal(err)
		}
		r, err := lease.NewReader(lease.Config{Readers: leases, TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s, err := slicelet.New(slicelet.Config{Job: "ledger", Task: name, Address: "127.0.0.1:1", Distributors: []string{d["listen"]}, Leases: r})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(s.Close(), r.Close(), leases.Close()); err != nil {
				t.Log(err) // what it would give them back to may be dead
			}
		})
	}
	var c *slicerv1.Consistency
	until(t, "both hold the guard, and no change is under way", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		i, err := admin(t, d["listen"]).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "ledger"})
		c = i.GetConsistency()
		return err == nil && c.GetGuardReaders() == 2 && c.GetBridgeTo() == 0 && c.GetStep() == ""
	})
	if c.GetGuardOnly() != 0 || c.GetBridgeOnly() != 0 {
		t.Errorf("not across: %v", c)
	}
	if _, out, _ := slicerctl(t, "--server="+d["listen"], "inspect", "ledger"); strings.Contains(out, "not across") {
		t.Error(out)
	}
}
