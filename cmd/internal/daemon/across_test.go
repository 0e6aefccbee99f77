package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/process"
)

// TestConsistentInEtcd: when a change is over, slicerctl inspect counts no reader as not
// across, since there is nothing to cross. When the store is then restored under servers
// that live, no key has two owners, and each has one again.
func TestConsistentInEtcd(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.NewCluster(t, 1).Endpoints()
	at, port := "--store=etcd://"+endpoints[0]+"/slicer", process.FreePorts(t, 1)[0]
	start := func() *runtest.Process {
		a := runtest.Start(t, "assigner", at, "--listen="+port, "--http=127.0.0.1:0")
		a.Where()
		return a
	}
	a := start()
	d := runtest.Start(t, "distributor", "--assigners="+port, "--listen=127.0.0.1:0", "--http=127.0.0.1:0").Where()
	becomesReady(t, d["http"])
	file := jobsFile(t)
	until(t, "jobs are made", func() bool {
		code, _, _ := slicerctl(t, "--server="+d["listen"], "job", "apply", "-f", file)
		return code == 0
	})
	var members []*slicelet.Slicelet
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
		members = append(members, s)
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

	backup := filepath.Join(t.TempDir(), "backup")
	command(t, 0, "2 jobs", "store", "check", at)
	command(t, 0, "records of", "store", "backup", backup, at)
	twice, gaps := countOwners(t, members)
	a.Stop(syscall.SIGTERM)
	command(t, 0, "restored", "store", "restore", backup, at, "--force")
	command(t, 0, "2 jobs", "store", "check", at)
	start()
	until(t, "each key was without an owner, and has one again", func() bool { return gaps.Load() > 0 && owned(members) })
	if n := twice.Load(); n != 0 {
		t.Errorf("%d times a key had two owners", n)
	}
}

const watched = 100 // keys

func ownersOfKey(members []*slicelet.Slicelet, key int) (n int) {
	for _, s := range members {
		if s.IsAffinitized(strconv.Itoa(key)) {
			n++
		}
	}
	return n
}

func owned(members []*slicelet.Slicelet) bool {
	for key := range watched {
		if ownersOfKey(members, key) != 1 {
			return false
		}
	}
	return true
}

// countOwners counts, until the test ends, how often a key had two owners, and how often
// none had any.
func countOwners(t *testing.T, members []*slicelet.Slicelet) (twice, gaps *atomic.Int64) {
	twice, gaps = new(atomic.Int64), new(atomic.Int64)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			any := 0
			for key := range watched {
				n := ownersOfKey(members, key)
				if any += n; n > 1 {
					twice.Add(1)
				}
			}
			if any == 0 {
				gaps.Add(1)
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return twice, gaps
}
