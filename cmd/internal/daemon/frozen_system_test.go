//go:build system

package daemon_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestDiskFreezes: the file system of "slicer serve" takes no writes for 9 s, in the midst of
// a change of a consistent job. Nothing is granted meanwhile, and the job goes on after, without
// a restart.
func TestDiskFreezes(t *testing.T) {
	disk, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	must("truncate", "--size=300M", disk)
	must("mkfs.ext4", "-q", disk)
	must("mount", "-o", "loop", disk, dir)
	defer must("umount", "--lazy", dir)

	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	p := runtest.Start(t, "serve", serveArgs(filepath.Join(dir, "store"))...)
	w := p.Where()
	becomesReady(t, w["http"])
	for name, lasts := range map[string]int64{"web": 4000, "other": 2000} {
		job := &slicerv1.JobConfig{Name: name, Mode: slicerv1.Mode_MODE_CONSISTENT, LeaseDurationMs: lasts}
		if _, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: job}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := member(t, w["listen"], w["listen"], "a"), member(t, w["listen"], w["backup"], "b")
	until(t, "each owns something", func() bool { return len(a.Slices()) > 0 && len(b.Slices()) > 0 })

	must("fsfreeze", "--freeze", dir)
	thaw := func() { _ = exec.Command("fsfreeze", "--unfreeze", dir).Run() }
	defer thaw() // or the process cannot end
	defer time.AfterFunc(9*time.Second, thaw).Stop()
	began := time.Now()
	// The first session of a job has to be on record before it is granted.
	readers := remote.New(dial(t, w["listen"]))
	if _, err := readers.OpenReader(ctx, time.Second, "other"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("a session that is not on record: %v", err)
	}
	c := member(t, w["listen"], w["listen"], "c")
	until(t, "what waited for the disk is done", func() bool {
		_, err := readers.OpenReader(ctx, time.Second, "other")
		return err == nil
	})
	if waited := time.Since(began); waited < 8*time.Second {
		t.Errorf("a session is granted after %s, before the disk has answered", waited)
	}
	until(t, "each owns something again", func() bool { return len(a.Slices()) > 0 && len(b.Slices()) > 0 && len(c.Slices()) > 0 })
	t.Logf("all own something %s after the disk went on", time.Since(began)-9*time.Second)
}
