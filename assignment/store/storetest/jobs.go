package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

func testIdentity(t *testing.T, h *harness) {
	s := h.open()
	id := s.ID()
	if id == 0 {
		t.Error("store id 0")
	}
	if other := h.another(s); other.ID() != id {
		t.Errorf("another handle has store id %016x, want %016x", other.ID(), id)
	}
	h.close(s)
	if again := h.open(); again.ID() != id {
		t.Errorf("opened again it has store id %016x, want %016x", again.ID(), id)
	}
	select {
	case <-s.Failed():
		t.Error("failed")
	default:
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func testJobs(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	if jobs, err := s.ListJobs(ctx); err != nil || len(jobs) != 0 {
		t.Errorf("an empty store lists %v, %v", jobs, err)
	}
	_, err := s.GetJob(ctx, "cache")
	h.is(err, store.ErrNotFound)
	h.is(s.DeleteJob(ctx, "cache"), store.ErrNotFound)
	for _, name := range []string{"", "a/b", "../x", "UPPER"} {
		if _, err := s.PutJob(ctx, assignment.JobConfig{Name: name}, store.AnyVersion); !isField(err) {
			t.Errorf("job %q: error %v, want a field error", name, err)
		}
		_, err := s.GetJob(ctx, name)
		h.is(err, store.ErrNotFound)
		h.is(s.DeleteJob(ctx, name), store.ErrNotFound)
		_, err = s.Read(ctx, name)
		h.is(err, store.ErrNotFound)
		_, err = s.ReadGeneration(ctx, name, 1)
		h.is(err, store.ErrNotFound)
	}
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "cache", MinReplicas: 5, MaxReplicas: 2}, store.AnyVersion); !isField(err) {
		t.Errorf("error %v, want a field error", err)
	}

	access, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/ns/cache/task/{task}"}, assignment.Configure: {"deployer.corp"}})
	if err != nil {
		t.Fatal(err)
	}
	full := assignment.JobConfig{
		Name: "cache", MinReplicas: 2, MaxReplicas: 7, Mode: assignment.Affinity, LoadMetric: assignment.LoadCPU,
		Zone: "eu-1", Store: "eu", HeartbeatTimeout: 3 * time.Second, LeaseDuration: 9 * time.Second,
		Balance: assignment.BalanceConfig{
			MinSlicesPerTask: 20, MaxSlicesPerTask: 90, MergeBudget: -1, MoveBudget: .2,
			BandStart: 1.2, BandStop: 1.1, Smoothing: .5, Interval: 7 * time.Second, CPUThreshold: -1,
		},
		WarmUp: assignment.NoWarmUp, History: 12, Damping: assignment.DampingConfig{HalfLife: 2 * time.Minute, Suppress: 4, Reuse: 2, Most: 8, Share: .5},
		Freeze:   assignment.FreezeConfig{Share: 1, MinTasks: 7, Window: 11 * time.Second, For: time.Minute},
		Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOff, DefaultCriticality: assignment.SheddablePlus, RetryAttempts: 2, RetryBudget: assignment.NoRetries},
		XDS:      assignment.XDSConfig{Missing: assignment.MissingRefuse, Retries: assignment.NoXDSRetries, RetryBackoff: 5 * time.Millisecond},
		MaxTasks: 70, TargetUtilization: .8, Access: access,
	}
	put, err := s.PutJob(ctx, full, store.NoVersion)
	want := store.Job{Config: full, Version: 1}
	if err != nil || cmp.Diff(want, put) != "" {
		t.Errorf("put: %v, %s", err, cmp.Diff(want, put))
	}
	for _, s := range []store.Store{s, h.another(s)} {
		if got, err := s.GetJob(ctx, "cache"); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("get: %v, %s", err, cmp.Diff(want, got))
		}
	}
	for i := range 150 {
		h.job(s, fmt.Sprintf("job-%03d", 149-i))
	}
	jobs, err := s.ListJobs(ctx)
	if err != nil || len(jobs) != 151 || jobs[0].Config.Name != "cache" {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for i, j := range jobs[1:] {
		if want := fmt.Sprintf("job-%03d", i); j.Config.Name != want || j.Version != 1 || j.Config != (assignment.JobConfig{Name: want}).WithDefaults() {
			t.Errorf("job %d: %+v, want %s with defaults", i, j, want)
		}
	}
}

func isField(err error) bool {
	var f *assignment.FieldError
	return errors.As(err, &f)
}

func testJobVersions(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	put := func(s store.Store, expect int64) (int64, error) {
		j, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, expect)
		return j.Version, err
	}
	want := func(version int64, s store.Store, expect int64) {
		t.Helper()
		if got, err := put(s, expect); err != nil || got != version {
			t.Errorf("version %d, %v; want %d", got, err, version)
		}
		if j, err := s.GetJob(ctx, "a"); err != nil || j.Version != version {
			t.Errorf("stored is version %d, %v; want %d", j.Version, err, version)
		}
	}
	_, err := put(s, 1)
	h.conflict(err, 0)
	want(1, s, store.NoVersion)
	_, err = put(other, store.NoVersion)
	h.conflict(err, 1)
	want(2, other, 1)
	_, err = put(s, 1)
	h.conflict(err, 2)
	want(3, s, store.AnyVersion)
	want(4, other, 3)
	if err := other.DeleteJob(ctx, "a"); err != nil {
		t.Error(err)
	}
	_, err = put(s, 4)
	h.conflict(err, 0)
	want(5, s, store.AnyVersion)
	if err := s.DeleteJob(ctx, "a"); err != nil {
		t.Error(err)
	}
	h.is(other.DeleteJob(ctx, "a"), store.ErrNotFound)
	want(6, other, store.NoVersion)
	h.close(s)
	if other == s {
		other = h.open()
	}
	want(7, other, 6)
}

// testCreatedBy: a job keeps the identity that has created it until it is deleted.
func testCreatedBy(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	other := h.another(s)
	cfg := assignment.JobConfig{Name: "a"}
	by := func(identity string) store.Entry {
		e := note("put by " + identity)
		e.Identity = identity
		return e
	}
	want := func(s store.Store, j store.Job, err error, creator string) {
		t.Helper()
		got, getErr := s.GetJob(ctx, "a")
		all, listErr := s.ListJobs(ctx)
		if err != nil || getErr != nil || listErr != nil || j.CreatedBy != creator || got != j || len(all) != 1 || all[0] != j {
			t.Errorf("put %+v, %v; stored %+v, %v; listed %+v, %v; want it created by %q", j, err, got, getErr, all, listErr, creator)
		}
	}
	j, err := s.PutJobBy(ctx, cfg, store.NoVersion, by("spiffe://corp/ann"))
	want(other, j, err, "spiffe://corp/ann")
	j, err = other.PutJobBy(ctx, cfg, 1, by("spiffe://corp/bob"))
	want(s, j, err, "spiffe://corp/ann")
	j, err = s.PutJob(ctx, cfg, store.AnyVersion)
	want(other, j, err, "spiffe://corp/ann")
	h.close(s)
	if s = h.open(); !h.Shared {
		other = s
	}
	want(s, j, nil, "spiffe://corp/ann")
	if err := s.DeleteJobBy(ctx, "a", by("spiffe://corp/bob")); err != nil {
		t.Fatal(err)
	}
	j, err = other.PutJob(ctx, cfg, store.AnyVersion)
	want(s, j, err, "")
	j, err = s.PutJobBy(ctx, cfg, store.AnyVersion, by("spiffe://corp/bob"))
	want(other, j, err, "")
	long := by(strings.Repeat("x", assignment.MaxIdentityLen+1))
	if _, err := s.PutJobBy(ctx, assignment.JobConfig{Name: "b"}, store.NoVersion, long); !isField(err) {
		t.Errorf("an identity of %d bytes: %v, want a field error", len(long.Identity), err)
	}
}

func testJobRaces(t *testing.T, h *harness) {
	ctx := t.Context()
	s := h.open()
	h.race(s, 8, 10, func(s store.Store) (int64, error) {
		j, err := s.GetJob(ctx, "a")
		if errors.Is(err, store.ErrNotFound) {
			j.Version = store.NoVersion
		} else if err != nil {
			return 0, err
		}
		j, err = s.PutJob(ctx, assignment.JobConfig{Name: "a"}, j.Version)
		return j.Version, err
	})
}

// race has writers, each with a store of its own, write by compare-and-swap until
// each has got so many writes through; every number from 1 on is given out once.
func (h *harness) race(s store.Backend, writers, writes int, try func(store.Store) (number int64, err error)) {
	h.Helper()
	seen := make([]atomic.Int32, writers*writes+1)
	var wg sync.WaitGroup
	for range writers {
		s := h.another(s)
		wg.Go(func() {
			for done := 0; done < writes; {
				switch number, err := try(s); {
				case err == nil:
					seen[number].Add(1)
					done++
				case !errors.Is(err, store.ErrConflict):
					h.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for v := 1; v < len(seen); v++ {
		if n := seen[v].Load(); n != 1 {
			h.Errorf("number %d was given out %d times", v, n)
		}
	}
}
