package subscriber

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// The table of what still works when parts die, as far as a subscriber goes.
func TestPartsDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		past := subscribertest.History(t, 1, 6)
		cache := filepath.Join(t.TempDir(), "cache")
		backup := n.Start(b1)
		backup.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY})
		backup.Put(past[0])

		// Only the Backup Distributor lives.
		s := start(t, n, func(c *Config) { c.CacheFile = cache })
		await(t, s, "the backup's", holds(1, Backup))
		if !s.State().Disconnected || s.State().Err == nil {
			t.Error("not disconnected, with all distributors dead")
		}
		// The Distributors return; the Backup is let go.
		one, two := n.Start(d1), n.Start(d2)
		one.Put(past[1])
		two.Put(past[1])
		await(t, s, "a distributor's", holds(2, Distributor))
		await(t, s, "to settle", func(s *State) bool { return !s.Disconnected })
		synctest.Wait()
		if backup.Streams() != 0 {
			t.Error("the backup is still used")
		}
		time.Sleep(10 * time.Second)
		// One Distributor dies: the other takes over with what it has newer.
		one.Put(past[2])
		two.Put(past[2])
		await(t, s, "the next", holds(3, Distributor))
		peer, victim, heir := s.State().Peer, one, two
		if peer == d2 {
			victim, heir = two, one
		}
		victim.Stop()
		heir.Put(past[3])
		await(t, s, "the other distributor's", func(st *State) bool { return holds(4, Distributor)(st) && st.Peer != peer })
		// All die: what there was last, stays.
		heir.Stop()
		backup.Stop()
		await(t, s, "to be disconnected", func(s *State) bool { return s.Link == None && s.Disconnected })
		if s.State().Assignment.Generation() != 4 {
			t.Errorf("holds %d, want 4", s.State().Assignment.Generation())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// A restart with no server there begins from the cache.
		s = start(t, n, func(c *Config) { c.CacheFile = cache })
		if err := s.Ready(t.Context()); err != nil || s.State().Source != Cache || s.State().Assignment.Generation() != 4 {
			t.Errorf("after a restart: %v, %+v", err, s.State())
		}
		if s.State().Status.Mode != assignment.Affinity {
			t.Errorf("mode %s, want affinity from the cache", s.State().Status.Mode)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// Of another job it is no use.
		s = start(t, n, func(c *Config) { c.CacheFile, c.Job = cache, "another" })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("Ready: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBlackholes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		n.Blackhole(d1, true)
		n.Blackhole(d2, true)
		backup := n.Start(b1)
		defer backup.Stop()
		backup.Put(subscribertest.History(t, 1, 1)[0])
		began := time.Now()
		s := start(t, n, nil)
		await(t, s, "the backup's", holds(1, Backup))
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("took %s of virtual time", d)
		}
		s.Close()
	})
}

// One name is that of several Distributors, and leads to each by turns. When a slicelet
// has found the one that is heard it stays there: the name would lead it away again.
func TestOneNameOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "10.0.0.9:1"
		n := subscribertest.NewNetwork()
		n.Alias(name, d1, d2)
		deaf, well := n.Start(d1), n.Start(d2)
		defer deaf.Stop()
		defer well.Stop()
		a := subscribertest.History(t, 1, 1)[0]
		for _, server := range []*subscribertest.Server{deaf, well} {
			server.Say(&slicerv1.Status{TakesReports: true, Unacknowledged: server == deaf})
			server.Put(a)
		}
		s := start(t, n, func(c *Config) {
			c.Role, c.Task, c.Distributors = Slicelet, subscribertest.Task("a", 0), []string{name}
		})
		await(t, s, "the first", holds(1, Distributor))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if deaf.Streams() != 0 || well.Streams() != 1 || n.Dials(name) != 2 {
			t.Errorf("%d streams to the one that is not heard, %d to the other, %d connections", deaf.Streams(), well.Streams(), n.Dials(name))
		}
		heard := len(well.Heard())
		s.Report(&slicerv1.Report{Sequence: 1})
		synctest.Wait()
		if news := well.Heard()[heard:]; len(news) != 1 || news[0].GetReport().GetSequence() != 1 {
			t.Errorf("of a report it heard %v", news)
		}
		// The connection that two streams had ends with the second.
		s.Close()
		synctest.Wait()
		if well.Streams() != 0 {
			t.Error("a stream is left after Close")
		}
	})
}

// A server that stands still, as under SIGSTOP: it takes everything and says
// nothing, but answers pings here. It had promised to be heard.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		one := n.Start(d1)
		defer one.Stop()
		one.Say(&slicerv1.Status{TakesReports: true, RepeatMs: 1000})
		one.Put(subscribertest.History(t, 1, 1)[0])
		s := start(t, n, nil)
		await(t, s, "the first", holds(1, Distributor))
		one.Silence(true)
		two := n.Start(d2)
		defer two.Stop()
		two.Put(subscribertest.History(t, 1, 2)[1])
		began := time.Now()
		await(t, s, "the other's", holds(2, Distributor))
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("took %s of virtual time", d)
		}
		s.Close()
	})
}

func TestRefusedThenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		past := subscribertest.History(t, 1, 3)
		server.Put(past[0])
		s := start(t, n, nil)
		await(t, s, "the first", holds(1, Distributor))
		server.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Chunk{Chunk: &slicerv1.Chunk{Data: []byte("rubbish")}}})
		server.Put(past[1]) // its delta follows the rubbish, so it cannot be right
		await(t, s, "the whole after the refusal", holds(2, Distributor))
		if c := s.Counters(); c.Refused != 1 || c.Failures > 1 {
			t.Errorf("counted %+v", c)
		}
		s.Close()
	})
}

func TestUnknownJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(d1)
		defer server.Stop()
		server.Refuse(status.Error(codes.NotFound, `no job "job"`))
		s := start(t, n, func(c *Config) { c.Distributors = []string{d1} })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.Ready(ctx); !errors.Is(err, ErrUnknownJob) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready: %v", err)
		}
		if got := n.Dials(d1); got < 4 || got > 12 {
			t.Errorf("%d attempts in 10 s, want a few", got)
		}
		if n.Dials(b1) != 0 {
			t.Error("the backup was asked, although the control plane is well")
		}
		// It is created.
		server.Refuse(nil)
		server.Put(subscribertest.History(t, 1, 1)[0])
		await(t, s, "the first", holds(1, Distributor))
		s.Close()
	})
}
