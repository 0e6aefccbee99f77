package serve_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// A session renews itself for ever and never releases: the change ends all the
// same, after the job's lease duration; no sooner than the session is over.
func TestHolderThatNeverReleasesIsEvicted(t *testing.T) {
	for _, renews := range []bool{true, false} {
		bubble(t, func(t *testing.T, clock func() time.Duration) {
			const wait, duration = 3 * time.Second, 5 * time.Second
			d := &durations{jobs: map[string]time.Duration{"job": duration}}
			s := openFor(t, &memory{}, clock, d, true)
			defer s.Close()
			w, token := lead(t, s, "job")
			n, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := n.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
			var trusted atomic.Int64 // until when a reader believes that counts from before the call
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					before := clock()
					if trusted.Load() == 0 {
						trusted.Store(int64(before + n.TTL()))
					}
					if err := n.KeepAlive(t.Context()); err != nil {
						return
					}
					if trusted.Store(max(trusted.Load(), int64(before+n.TTL()))); !renews {
						return
					}
					time.Sleep(300 * time.Millisecond)
				}
			}()
			var recalled time.Duration
			began := clock()
			_, err = lease.Advance(t.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 2, Wait: wait,
				Observe: func(s lease.Step, _ lease.State, _ time.Duration) {
					switch s.Kind {
					case lease.Recall:
						recalled = clock()
					case lease.Rewrite:
						if took := clock() - recalled; took > duration+50*time.Millisecond {
							t.Errorf("keys were without an owner for %s, leases last for %s", took, duration)
						}
						if over := time.Duration(trusted.Load()); clock() < over {
							t.Errorf("the guard was rewritten %s before the holder was over", over-clock())
						}
					}
				}})
			if took := clock() - began; err != nil || renews && took > wait+duration+100*time.Millisecond {
				t.Errorf("the change took %s: %v", took, err)
			}
			<-done
			if _, _, err := n.Acquire(t.Context(), "job", lease.GuardClaim(2)); !errors.Is(err, lease.ErrLost) {
				t.Errorf("the session goes on: %v", err)
			}
		})
	}
}

// A session that lets go in time is renewed as ever.
func TestHolderThatReleasesStays(t *testing.T) {
	bubble(t, func(t *testing.T, clock func() time.Duration) {
		d := &durations{jobs: map[string]time.Duration{"job": 5 * time.Second}}
		s := openFor(t, &memory{}, clock, d, true)
		defer s.Close()
		w, token := lead(t, s, "job")
		n, err := s.OpenReader(t.Context(), lease.MaxTTL, "job")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := n.Acquire(t.Context(), "job", lease.GuardClaim(1)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		go func() {
			for range 18 { // 4.5 s, the second half of them past the recall
				time.Sleep(250 * time.Millisecond)
				if err := n.KeepAlive(t.Context()); err != nil {
					t.Errorf("after %s: %v", clock(), err)
				}
			}
			if err := n.Release(t.Context(), "job", lease.GuardClaim(1)); err != nil {
				t.Error(err)
			}
		}()
		if _, err := lease.Advance(t.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 2, Wait: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if err := n.KeepAlive(t.Context()); err != nil || n.TTL() != 5*time.Second {
			t.Errorf("renewed for %s, %v", n.TTL(), err)
		}
	})
}
