package subscriber

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		past := subscribertest.History(t, 1, 5)
		one, two, back := n.Start(d1), n.Start(d2), n.Start(b1)
		defer one.Stop()
		defer two.Stop()
		defer back.Stop()
		one.Put(past[1])
		two.Put(past[1])
		s := start(t, n, nil)
		defer s.Close()
		await(t, s, "generation", holds(past[1].Generation(), Distributor))
		get := func(i int) (time.Duration, error) {
			t.Helper()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			a, err := s.Fetch(ctx, past[i].Generation())
			if err == nil && (a.Generation() != past[i].Generation() || a.Checksum() != past[i].Checksum()) {
				t.Errorf("asked for generation %d, got %d", past[i].Generation(), a.Generation())
			}
			return time.Since(began), err
		}
		fetches := func() int { return one.Fetches() + two.Fetches() + back.Fetches() }

		if took, err := get(1); err != nil || took > 0 || fetches() != 0 {
			t.Errorf("what is held: %v after %s and %d fetches", err, took, fetches())
		}
		// One Distributor has an older one: wherever the subscriber is, it is found.
		two.Put(past[0])
		one.Put(past[2])
		two.Put(past[2])
		await(t, s, "generation", holds(past[2].Generation(), Distributor))
		if took, err := get(0); err != nil || took > 10*time.Millisecond {
			t.Errorf("an older one: %v after %s", err, took)
		}
		// On its way: not asked for.
		before := fetches()
		go func() {
			time.Sleep(10 * time.Millisecond)
			one.Put(past[3])
			two.Put(past[3])
		}()
		if took, err := get(3); err != nil || took != 10*time.Millisecond || fetches() != before {
			t.Errorf("what is on its way: %v after %s and %d fetches", err, took, fetches()-before)
		}
		// Only a Backup Distributor has it, and the Distributors do not answer.
		back.Put(past[4])
		one.Silence(true)
		two.Silence(true)
		if took, err := get(4); err != nil || took > fetchGrace*3/2+2*fetchNext+10*time.Millisecond {
			t.Errorf("from a backup: %v after %s", err, took)
		}
		back.Stop()
		n.Blackhole(b1, true)
		if took, err := get(4); !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Errorf("no answer: %v after %s", err, took)
		}
		one.Silence(false)
		two.Silence(false)
		n.Blackhole(b1, false)
		if took, err := get(4); !errors.Is(err, ErrUnavailable) || took > time.Second {
			t.Errorf("none has it: %v after %s", err, took)
		}
		n.Blackhole(b1, true)
		ended := make(chan error, 1)
		go func() {
			_, err := get(4)
			ended <- err
		}()
		synctest.Wait()
		s.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("closed meanwhile: %v", err)
		}
	})
}

// What a server sends is not trusted.
func TestFetchOfSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		liar := n.Start(d1)
		defer liar.Stop()
		s := start(t, n, func(c *Config) { c.Distributors, c.Backups = []string{d1}, nil })
		defer s.Close()
		messages := func(g int) []*slicerv1.WatchResponse {
			f, err := wire.WholeFrame(subscribertest.History(t, 1, 3)[g-1])
			if err != nil {
				t.Fatal(err)
			}
			return subscribertest.Messages(f)
		}
		for _, send := range [][]*slicerv1.WatchResponse{
			nil,
			messages(2),     // another generation
			messages(1)[1:], // no chunks
			messages(1)[:1], // no trailer
			{{Message: &slicerv1.WatchResponse_Status{Status: &slicerv1.Status{}}}},
			{{}},
		} {
			liar.Forge(send...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if a, err := s.Fetch(ctx, 1); err == nil || !errors.Is(err, ErrUnavailable) {
				t.Errorf("%v: %v, %v", send, a, err)
			}
			cancel()
		}
	})
}
