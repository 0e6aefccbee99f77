package subscriber

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
)

// asSlicelet has a subscriber be the slicelet of a task, which reads parts or does not.
func asSlicelet(task string, parts bool) func(*Config) {
	return func(c *Config) {
		c.Role, c.Task, c.Parts = Slicelet, subscribertest.Task(task, 0), parts
	}
}

// A part in the cache file is for its task alone.
func TestPartInTheCacheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		cache := filepath.Join(t.TempDir(), "cache")
		part := assignment.NewCut(subscribertest.History(t, 1, 5)[4]).Part("a")
		if err := writeCache(cache, cacheEntry{part, assignment.Affinity, -1, 0}); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			as   func(*Config)
			want bool
		}{
			"its task":                {asSlicelet("a", true), true},
			"one that reads no parts": {asSlicelet("a", false), false},
			"another task":            {asSlicelet("b", true), false},
			"a clerk":                 {func(*Config) {}, false},
		} {
			s := start(t, n, func(cfg *Config) { c.as(cfg); cfg.CacheFile = cache })
			held := s.State().Assignment
			if (held != nil) != c.want || held != nil && held.Checksum() != part.Checksum() {
				t.Errorf("%s holds %v", name, held)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A server that knows no parts is sent for the whole, of which only the part is kept if it is
// large; one that knows them sends the part.
func TestFetchOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ knows, small bool }{{false, false}, {true, false}, {false, true}} {
			n := subscribertest.NewNetwork()
			server := n.Start(d1)
			if c.knows {
				server.SendParts()
			}
			owners := make([]uint32, assignment.PartFrom)
			if c.small {
				owners = owners[:9]
			}
			owners[3] = 1
			tasks := []assignment.Task{subscribertest.Task("a", 0), subscribertest.Task("b", 1)}
			first := subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, tasks, owners...)
			second := subscribertest.Equal(t, first, assignment.Header{Job: "job", StoreID: 1, Generation: 2}, tasks, owners...)
			server.Put(first)
			server.Put(second)
			s := start(t, n, asSlicelet("b", true))
			await(t, s, "generation", holds(2, Distributor))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			got, err := s.Fetch(ctx, 1)
			cancel()
			want := assignment.NewCut(first).Part("b")
			if c.small {
				want = first
			}
			if err != nil || got.Checksum() != want.Checksum() {
				t.Errorf("server knows parts %t, small %t: %v, %v", c.knows, c.small, got, err)
			}
			s.Close()
			server.Stop()
		}
	})
}
