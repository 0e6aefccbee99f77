package pebblestore

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/waittest"
)

func wantLeases(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got, err := s.Leases().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for k, v := range got {
		texts[k] = string(v)
	}
	if !maps.Equal(texts, want) {
		t.Errorf("lease records %v, want %v", texts, want)
	}
}

// What was put is there after the machine has died, apart from all else, and
// outlives the job.
func TestLeases(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, err := Open("store", Config{fs: disk, Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutJob(t.Context(), assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(t.Context(), storetest.First("a", s.ID(), 1, 2, 4)); err != nil {
		t.Fatal(err)
	}
	wantLeases(t, s, map[string]string{})
	put := func(records map[string][]byte) {
		t.Helper()
		if err := s.Leases().Put(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	put(map[string][]byte{"lease/job/a/head": []byte("1"), "lease/job/a/guard": []byte("1 open"), "lease/job/a/bridge": []byte("1 2 open")})
	put(map[string][]byte{"lease/job/a/head": []byte("2"), "lease/job/a/bridge": nil, "lease/job/b/bridge": nil})
	if err := s.DeleteJob(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"lease/job/a/head": "2", "lease/job/a/guard": "1 open"}
	wantLeases(t, s, want)
	if err := s.Leases().Put(t.Context(), map[string][]byte{"lease/x": []byte("x"), "jobs/a/config": []byte("y")}); err == nil {
		t.Error("a key that is not a lease's is accepted")
	}

	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Leases().Put(t.Context(), nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("put after Close: %v", err)
	}
	again, err := Open("store", Config{fs: crashed, Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	wantLeases(t, again, want)
	if jobs, err := again.ListJobs(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
}

// A damaged record is refused, with its key named.
func TestDamagedLease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, roomy)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Leases().Put(t.Context(), map[string][]byte{"lease/job/a/guard": []byte("5 open"), "lease/longest": []byte("12345678")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := newRaw(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	good, err := r.Get("lease/job/a/guard")
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(good) + 2 {
		bad := append([]byte{}, good...)
		switch {
		case i < len(bad):
			bad[i] ^= 1
		case i == len(good):
			bad = bad[:len(bad)-1]
		default:
			if bad, err = r.Get("lease/longest"); err != nil { // another's value
				t.Fatal(err)
			}
		}
		if err := r.Put("lease/job/a/guard", bad); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir, roomy); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Leases().Load(t.Context()); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "lease/job/a/guard") {
			t.Errorf("damage %d: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err = newRaw(dir, Config{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
