package pebblestore

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/storetest"
)

func TestZZ(t *testing.T) {
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 3))
	disk := vfs.NewCrashableMem()
	s, _ := Open("store", Config{fs: disk})
	s.PutJob(ctx, assignment.JobConfig{Name: "a"}, store.NoVersion)
	a := storetest.First("a", s.ID(), 1, 5, 400)
	for i := range 12 {
		if i == 6 {
			s.db.Flush()
		}
		s.Write(ctx, a)
		a = storetest.Shuffled(a, a.Generation()+1, rng)
	}
	s.Close()
	names, _ := disk.List("store")
	seen := map[string]int{}
	for _, n := range names {
		if !strings.HasSuffix(n, ".sst") && !strings.HasPrefix(n, "MANIFEST") {
			continue
		}
		for range 150 {
			damaged := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			flip(t, damaged, "store/"+n, rng)
			s, err := Open("store", Config{fs: damaged, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				seen[n+" not opened"]++
				continue
			}
			err = s.db.Compact(ctx, []byte("a"), []byte("z"), false)
			if err != nil {
				seen[n+" compact "+err.Error()]++
				if !strings.Contains(err.Error(), "checksum") {
					t.Log(err, pebble.IsCorruptionError(err))
				}
			}
			if s.Err() != nil {
				t.Log("ERR", s.Err())
			}
			s.Close()
		}
	}
	for k, v := range seen {
		t.Log(v, k)
	}
}
