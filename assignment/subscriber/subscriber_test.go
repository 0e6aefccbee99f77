package subscriber

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	d1 = "10.0.0.1:1"
	d2 = "10.0.0.2:1"
	b1 = "10.0.1.1:1"
)

func start(t *testing.T, n *subscribertest.Network, change func(*Config)) *Subscriber {
	t.Helper()
	cfg := Config{
		Job: "job", Role: Clerk, ClientID: "me",
		Distributors: []string{d1, d2}, Backups: []string{b1}, DialOptions: n.DialOptions(),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// await fails the test if the state does not come within a minute of virtual time.
func await(t *testing.T, s *Subscriber, what string, wanted func(*State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Await(ctx, what, wanted); err != nil {
		t.Fatal(err)
	}
}

func holds(g assignment.Generation, from Source) func(*State) bool {
	return func(s *State) bool {
		return s.Assignment != nil && s.Assignment.Generation() == g && s.Link == from
	}
}

func acks(s *subscribertest.Server) (gens []int64) {
	for _, m := range s.Heard() {
		if a := m.GetAck(); a != nil {
			gens = append(gens, a.Generation)
		}
	}
	return gens
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		past := subscribertest.History(t, 1, 4)
		server.Put(past[0])
		var observed atomic.Int64
		s := start(t, n, func(c *Config) {
			c.Zone = "z1"
			c.Observe = func(st State) {
				if st.Assignment != nil {
					observed.Store(int64(st.Assignment.Generation()))
				}
			}
		})
		await(t, s, "the first", holds(1, Distributor))
		changed := s.Changed()
		server.Put(past[1])
		<-changed
		server.Put(past[3]) // a delta over two generations
		await(t, s, "the newest", holds(4, Distributor))
		synctest.Wait()
		if got := acks(server); len(got) != 3 || got[2] != 4 || observed.Load() != 4 {
			t.Errorf("acknowledged %v, want 1, 2, 4; observed %d", got, observed.Load())
		}
		hello := server.Heard()[0].GetHello()
		if hello.GetJob() != "job" || hello.GetClientId() != "me" || hello.GetZone() != "z1" || hello.GetRole() != slicerv1.Role_ROLE_CLERK {
			t.Errorf("hello %v", hello)
		}
		if c := s.Counters(); c.Updates[Distributor] != 3 || c.Refused != 0 {
			t.Errorf("counted %+v", c)
		}
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if server.Streams() != 0 || time.Since(began) > time.Second/2 {
			t.Errorf("%d streams left after a close that took %s", server.Streams(), time.Since(began))
		}
		if s.State().Assignment.Generation() != 4 {
			t.Error("the assignment is gone after Close")
		}
		if err := s.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		s := start(t, n, func(c *Config) {
			c.Role, c.Task = Slicelet, subscribertest.Task("a", 7)
			c.Distributors = []string{d1}
		})
		for i := range uint64(3) {
			s.Report(&slicerv1.Report{Sequence: i + 1, State: slicerv1.TaskState_TASK_STATE_DRAINING})
		}
		time.Sleep(time.Second)
		server := n.Start(d1)
		defer server.Stop()
		server.Put(subscribertest.History(t, 1, 1)[0])
		await(t, s, "the first", holds(1, Distributor))
		s.Report(&slicerv1.Report{Sequence: 4})
		synctest.Wait()
		heard := server.Heard()
		h := heard[0].GetHello()
		if h.GetReport().GetSequence() != 3 || h.GetReport().GetAgeMs() < 1000 || h.GetTask().GetName() != "a" ||
			h.GetTask().GetIndex() != 0 || h.GetTask().GetState() != slicerv1.TaskState_TASK_STATE_DRAINING {
			t.Errorf("hello %v", h)
		}
		var reports []uint64
		for _, m := range heard {
			if r := m.GetReport(); r != nil {
				reports = append(reports, r.Sequence)
			}
		}
		if len(reports) != 1 || reports[0] != 4 {
			t.Errorf("reports %v after the hello, want 4", reports)
		}
		s.Close()
	})
}

func TestCacheSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		past := subscribertest.History(t, 1, 6)
		cache := filepath.Join(t.TempDir(), "cache")
		server.Put(past[0])
		s := start(t, n, func(c *Config) { c.CacheFile = cache })
		cached := func() assignment.Generation {
			synctest.Wait()
			e, err := readCache(cache, "job")
			if err != nil {
				t.Fatal(err)
			}
			return e.assignment.Generation()
		}
		await(t, s, "the first", holds(1, Distributor))
		if g := cached(); g != 1 {
			t.Errorf("cached %d, want the first at once", g)
		}
		for i := 1; i <= 3; i++ {
			server.Put(past[i])
			await(t, s, "the next", holds(assignment.Generation(i+1), Distributor))
			if g := cached(); g != 1 {
				t.Errorf("cached %d right after the first", g)
			}
		}
		time.Sleep(cacheSpacing)
		if g := cached(); g != 4 {
			t.Errorf("cached %d after the pause, want 4", g)
		}
		server.Put(past[4])
		await(t, s, "the last", holds(5, Distributor))
		s.Close()
		if g := cached(); g != 5 {
			t.Errorf("cached %d after Close, want 5", g)
		}
	})
}

func TestBadCacheIsNotFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		server.Put(subscribertest.History(t, 1, 1)[0])
		cache := filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(cache, []byte("not a cache"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := start(t, n, func(c *Config) { c.CacheFile = cache })
		await(t, s, "the first", holds(1, Distributor))
		s.Close()
		if e, err := readCache(cache, "job"); err != nil || e.assignment.Generation() != 1 {
			t.Errorf("not replaced: %v", err)
		}
	})
}

func TestCloseAtAnyTime(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n := subscribertest.NewNetwork()
			n.Blackhole(d1, true)
			server := n.Start(b1)
			defer server.Stop()
			server.Silence(true)
			s := start(t, n, nil)
			time.Sleep(after)
			began := time.Now()
			s.Close()
			if d := time.Since(began); d > goodbyeTimeout {
				t.Errorf("Close after %s took %s", after, d)
			}
			if err := s.Ready(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Ready after Close: %v", err)
			}
		})
	}
}

func TestConfigRefused(t *testing.T) {
	good := Config{Job: "job", Role: Clerk, ClientID: "me", Distributors: []string{d1}}
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"job name", func(c *Config) { c.Job = "a/b" }},
		{"role", func(c *Config) { c.Role = 0 }},
		{"client id", func(c *Config) { c.ClientID = "" }},
		{"zone", func(c *Config) { c.Zone = "a b" }},
		{"distributors", func(c *Config) { c.Distributors = nil }},
		{"distributors", func(c *Config) { c.Distributors = []string{"host"} }},
		{"distributors", func(c *Config) { c.Distributors = []string{"host:0"} }},
		{"distributors", func(c *Config) { c.Distributors = make([]string, 257) }},
		{"backups", func(c *Config) { c.Backups = []string{":80"} }},
		{"task name", func(c *Config) { c.Role = Slicelet }},
	} {
		cfg := good
		c.change(&cfg)
		var fe *assignment.FieldError
		if _, err := New(cfg); !errors.As(err, &fe) || fe.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	if id := NewClientID("two words"); !assignment.ValidToken(id, maxClientID) || id == NewClientID("two words") {
		t.Errorf("client id %q", id)
	}
}
