package pebblestore

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
	"github.com/slicer-project/slicer/assignment/waittest"
)

// TestDamagedFiles flips bits in the files below the records: a store either
// does not open, or says what is damaged, or is right.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	seed := seedtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	disk := vfs.NewCrashableMem()
	s, err := Open("store", Config{fs: disk, Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion); err != nil {
		t.Fatal(err)
	}
	var all []*assignment.Assignment
	a := storetest.First("a", s.ID(), 1, 5, 400)
	for i := range 60 {
		if i == 55 { // into a table of its own
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Write(ctx, a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		a = storetest.Shuffled(a, a.Generation()+1, rng)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := disk.List("store")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	outcomes := make(map[string]int)
	for _, name := range names {
		if name == "LOCK" || strings.HasPrefix(name, "OPTIONS") {
			continue
		}
		for range seedtest.Cases(10) {
			damaged := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			if !flip(t, damaged, filepath.Join("store", name), rng) {
				break
			}
			outcomes[lookAt(ctx, t, name, damaged, all)]++
			// A second try must not take what is left for good.
			outcomes[lookAt(ctx, t, name, damaged, all)]++
		}
	}
	// The end of a log is cut off.
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			damaged := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			truncate(t, damaged, filepath.Join("store", name))
			outcomes[lookAt(ctx, t, name, damaged, all)]++
		}
	}
	t.Logf("outcomes %v", outcomes)
	if outcomes["not opened"] == 0 || outcomes["corrupt"] == 0 {
		t.Error("want damage that is noticed at once and damage that is noticed later")
	}
}

// flip flips a bit of a file that is not empty.
func flip(t *testing.T, fs *vfs.MemFS, name string, rng *rand.Rand) bool {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() || info.Size() == 0 {
		return false
	}
	at := rng.Int64N(info.Size())
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	return true
}

// truncate leaves a third of a file.
func truncate(t *testing.T, fs *vfs.MemFS, name string) {
	t.Helper()
	in, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(data[:len(data)/3]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

func lookAt(ctx context.Context, t *testing.T, name string, fs *vfs.MemFS, all []*assignment.Assignment) string {
	t.Helper()
	s, err := Open("store", Config{fs: fs, Timeout: waittest.Patience})
	if err != nil {
		if !strings.Contains(err.Error(), "open store directory store") {
			t.Errorf("%s: error %v does not name the directory", name, err)
		}
		return "not opened"
	}
	defer s.Close()
	outcome := "right"
	for _, want := range all {
		got, err := s.ReadGeneration(ctx, "a", want.Generation())
		switch {
		case errors.Is(err, store.ErrCorrupt):
			outcome = "corrupt"
		case err != nil:
			t.Errorf("%s: generation %d: %v", name, want.Generation(), err)
		case !storetest.Same(got, want):
			t.Errorf("%s: generation %d is wrong, and no call says so", name, want.Generation())
		}
	}
	return outcome
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The tests may run as root, who may do anything.
	forbidden := func(kind errorfs.OpKind) vfs.FS {
		return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind {
				return &os.PathError{Op: "open", Path: op.Path, Err: syscall.EACCES}
			}
			return nil
		}))
	}
	for _, c := range []struct {
		name, dir string
		cfg       Config
		want      string
	}{
		{"in use", dir, Config{}, "in use"},
		{"below a file", filepath.Join(file, "dir"), Config{}, "not a directory"},
		{"a file", file, Config{}, "not a directory"},
		{"parent without permission", t.TempDir() + "/x", Config{fs: forbidden(errorfs.OpMkdirAll)}, "permission denied"},
		{"directory without permission", t.TempDir(), Config{fs: forbidden(errorfs.OpLock)}, "permission denied"},
		{"files without permission", t.TempDir(), Config{fs: forbidden(errorfs.OpCreate)}, "permission denied"},
		{"few generations", t.TempDir(), Config{Keep: 1}, "kept generations: 1"},
		{"many generations", t.TempDir(), Config{Keep: 2000}, "kept generations: 2000"},
		{"short timeout", t.TempDir(), Config{Timeout: 1}, "timeout: 1ns"},
	} {
		s, err := Open(c.dir, c.cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: opened", c.name)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, c.want) || strings.Contains(msg, "\n") || c.cfg.fs == nil && c.cfg == (Config{}) && !strings.Contains(msg, c.dir) {
			t.Errorf("%s: error %q, want one line with %q and the directory", c.name, msg, c.want)
		}
	}
}

// TestCandidateRevisions go on when the process is another.
func TestCandidateRevisions(t *testing.T) {
	dir := t.TempDir()
	var last int64
	for range 3 {
		s, err := Open(dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.Candidates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if i > 0 {
				if _, err := s.Register(t.Context(), store.Candidate{ID: string(rune('a' + i)), Address: "h:1"}); err != nil {
					t.Fatal(err)
				}
			}
			_, rev, err := w.Next(t.Context())
			if err != nil || rev <= last {
				t.Errorf("revision %d after %d, %v", rev, last, err)
			}
			last = rev
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
