package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// member starts a task of the job "web" in consistent mode, whose leases are served at
// an address that may be another one.
func member(t *testing.T, addr, leases, name string) *slicelet.Slicelet {
	t.Helper()
	r, err := lease.NewReader(lease.Config{Readers: remote.New(dial(t, leases)), TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: name, Address: "127.0.0.1:1", Distributors: []string{addr}, Leases: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), r.Close()); err != nil {
			t.Log(err) // the process that it would give them back to may be dead
		}
	})
	return s
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestServeConsistent: "slicer serve" hosts the leases of a consistent job. When it
// is killed the tasks stop serving; after a restart nothing is granted until all
// that it had granted has run out, and then the tasks own their keys again.
func TestServeConsistent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	args := lastingArgs(t, dir)
	p := runtest.Start(t, "serve", args...)
	w := p.Where()
	becomesReady(t, w["http"])
	job := &slicerv1.JobConfig{Name: "web", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: 2000}
	ops := admin(t, w["listen"])
	if _, err := ops.PutJob(ctx, &slicerv1.PutJobRequest{Config: job}); err != nil {
		t.Fatal(err)
	}
	a, b := member(t, w["listen"], w["listen"], "a"), member(t, w["listen"], w["backup"], "b")
	owners := func(key string) (n int) {
		for _, s := range []*slicelet.Slicelet{a, b} {
			if s.IsAffinitized(key) {
				n++
			}
		}
		return n
	}
	owned := func() bool {
		for i := range 100 {
			if owners(fmt.Sprint(i)) != 1 {
				return false
			}
		}
		return len(a.Slices()) > 0 && len(b.Slices()) > 0
	}
	until(t, "each key has an owner", owned)
	i, err := ops.InspectJob(ctx, &slicerv1.InspectJobRequest{Job: "web"})
	if c := i.GetConsistency(); err != nil || c.GetGuard() == 0 || c.GetGuardReaders() != 2 || !c.GetLeading() {
		t.Errorf("consistency %v, %v", c, err)
	}

	// No goodbye. The port stays the same, as an operator would have it.
	p.Signal(syscall.SIGKILL)
	p.End()
	until(t, "no task owns anything", func() bool { return len(a.Slices())+len(b.Slices()) == 0 })
	restarted := time.Now()
	p = runtest.Start(t, "serve", args...)
	w = p.Where()
	_, err = remote.New(dial(t, w["listen"])).OpenReader(ctx, time.Second, "web")
	switch opened := time.Since(restarted); {
	case err == nil && opened > 2*time.Second: // on a slow machine the leases of before may have run out
	case err == nil || !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "nothing is granted"):
		t.Errorf("%s after it was started again a session is opened: %v", opened, err)
	}
	// An operator can do his work meanwhile.
	becomesReady(t, w["http"])
	until(t, "the config is accepted", func() bool {
		_, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: job})
		return err == nil
	})
	until(t, "each key has an owner again", owned)
	p.Stop(syscall.SIGTERM)
}

// TestLongSessionDelaysNothing: a stranger asks "slicer serve" for a session of ten
// minutes, and the process is killed. The job goes on after its own lease
// duration.
func TestLongSessionDelaysNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	p := runtest.Start(t, "serve", serveArgs(dir)...)
	w := p.Where()
	becomesReady(t, w["http"])
	job := &slicerv1.JobConfig{Name: "web", Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: 2000}
	if _, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: job}); err != nil {
		t.Fatal(err)
	}
	open := func(addr string) (lease.ReadSession, error) {
		return remote.New(dial(t, addr)).OpenReader(ctx, lease.MaxTTL, "web")
	}
	var long lease.ReadSession
	until(t, "the stranger has a session", func() (ok bool) {
		s, err := open(w["listen"])
		long = s
		return err == nil
	})
	if got := long.TTL(); got > 2*time.Second {
		t.Errorf("a session of %s was granted, leases of the job last for 2s", got)
	}
	p.Signal(syscall.SIGKILL)
	p.End()
	p = runtest.Start(t, "serve", serveArgs(dir)...)
	w = p.Where()
	began := time.Now()
	until(t, "the job goes on", func() bool {
		_, err := open(w["listen"])
		return err == nil
	})
	t.Logf("a session is granted %s after the restart", time.Since(began).Round(10*time.Millisecond))
	p.Stop(syscall.SIGTERM)
}
