package serve_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/serve"
)

// slow is memory whose writes wait while it is stalled, as those of a disk that hangs do.
type slow struct {
	memory
	stalled chan struct{} // closed when it goes on; nil: it does not wait
}

func (s *slow) Put(ctx context.Context, records map[string][]byte) error {
	s.mu.Lock()
	stalled := s.stalled
	s.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.memory.Put(ctx, records)
}

func (s *slow) stall() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.stalled = c
	return func() {
		s.mu.Lock()
		s.stalled = nil
		s.mu.Unlock()
		close(c)
	}
}

// slowStore is a store on such a disk with a writer that leads, at generation 1.
type slowStore struct {
	*testing.T
	disk *slow
	s    *serve.Store
	w    lease.WriteSession
	t    lease.Token
	r    lease.ReadSession
}

func slowly(t *testing.T, test func(x *slowStore)) {
	synctest.Test(t, func(t *testing.T) {
		x := &slowStore{T: t, disk: &slow{}}
		began := time.Now()
		var err error
		x.s, err = serve.Open(t.Context(), serve.Config{Storage: x.disk, Clock: func() time.Duration { return time.Since(began) }})
		if err == nil {
			x.w, err = x.s.OpenWriter(t.Context(), time.Minute)
		}
		if err == nil {
			x.t, err = x.w.Lead(t.Context(), "job")
		}
		if err == nil {
			err = x.advance(1)
		}
		if err == nil {
			x.r, err = x.s.OpenReader(t.Context(), 20*time.Second, "job")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer x.s.Close()
		test(x)
	})
}

func (x *slowStore) advance(g assignment.Generation) error {
	ctx, cancel := context.WithTimeout(x.Context(), time.Minute)
	defer cancel()
	_, err := lease.Advance(ctx, x.w, lease.Change{Job: "job", Token: x.t, Wanted: g, Wait: 10 * time.Second})
	return err
}

// change begins a change, which waits out what is unavailable.
func (x *slowStore) change(g assignment.Generation) <-chan error {
	done := make(chan error, 1)
	go func() { done <- x.advance(g) }()
	time.Sleep(2 * time.Second)
	return done
}

// refused checks that nothing is done now.
func (x *slowStore) refused(when string) {
	x.Helper()
	for what, call := range map[string]func() error{
		"state":      func() error { _, err := x.w.State(x.Context(), "job"); return err },
		"keepalive":  func() error { return x.r.KeepAlive(x.Context()) },
		"open":       func() error { _, err := x.s.OpenReader(x.Context(), time.Second, "other"); return err },
		"lead":       func() error { _, err := x.w.Lead(x.Context(), "other"); return err },
		"claim":      func() error { _, _, err := x.r.Acquire(x.Context(), "job", lease.GuardClaim(1)); return err },
		"suspension": func() error { return x.s.Suspend(x.Context(), time.Second) },
	} {
		began := time.Now()
		if err := call(); !errors.Is(err, lease.ErrUnavailable) || time.Since(began) > time.Second {
			x.Errorf("%s: %s: %v after %s", when, what, err, time.Since(began))
		}
	}
}

// A disk that does not answer holds up what is asked of the store, for a second each, and
// does not end the store: once it answers, the change that waited for it has been made,
// and the store goes on.
func TestSlowDisk(t *testing.T) {
	slowly(t, func(x *slowStore) {
		goOn := x.disk.stall()
		changed := x.change(2)
		for range 3 {
			x.refused("while the disk hangs")
			time.Sleep(3 * time.Second)
		}
		goOn()
		synctest.Wait()
		if err := x.r.KeepAlive(x.Context()); err != nil {
			t.Errorf("after it: %v", err)
		}
		if err := <-changed; err != nil {
			t.Errorf("the change that waited for it: %v", err)
		}
		if st, err := x.w.State(x.Context(), "job"); err != nil || st.Records.Head != 2 {
			t.Errorf("after it: %+v, %v", st.Records, err)
		}
		for g := assignment.Generation(3); g < 6; g++ {
			if err := x.advance(g); err != nil {
				t.Errorf("change to %d: %v", g, err)
			}
		}
		st, err := x.w.State(x.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		// What is in memory is what is stored.
		if err := x.s.Close(); err != nil {
			t.Error(err)
		}
		again := open(t, &x.disk.memory, nil)
		defer again.Close()
		w, err := again.OpenWriter(x.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := w.State(x.Context(), "job"); err != nil || now.Records != st.Records {
			t.Errorf("stored: %+v, %v, want %+v", now.Records, err, st.Records)
		}
	})
}

// A session whose lease time passes meanwhile is over.
func TestSlowDiskOutlivesSessions(t *testing.T) {
	slowly(t, func(x *slowStore) {
		goOn := x.disk.stall()
		changed := x.change(2)
		time.Sleep(50 * time.Second)
		goOn()
		if err := <-changed; err != nil {
			t.Error(err)
		}
		if err := x.r.KeepAlive(x.Context()); !errors.Is(err, lease.ErrLost) {
			t.Errorf("a session of 20s after a minute: %v", err)
		}
		if _, err := x.s.OpenReader(x.Context(), time.Second, "job"); err != nil {
			t.Errorf("a new session: %v", err)
		}
	})
}

// A disk that fails in the end stops the store for good: what is stored is not known.
func TestSlowDiskFails(t *testing.T) {
	slowly(t, func(x *slowStore) {
		goOn := x.disk.stall()
		changed := x.change(2)
		defer func() { <-changed }() // it gives up
		x.disk.mu.Lock()
		x.disk.fail = errors.New("input/output error")
		x.disk.mu.Unlock()
		goOn()
		synctest.Wait()
		x.disk.mu.Lock()
		x.disk.fail = nil
		x.disk.mu.Unlock()
		x.refused("after a failure")
		time.Sleep(time.Minute)
		x.refused("a minute after")
	})
}

// Close does not wait for a disk that hangs.
func TestCloseOnSlowDisk(t *testing.T) {
	slowly(t, func(x *slowStore) {
		goOn := x.disk.stall()
		changed := x.change(2)
		defer func() { <-changed }() // it gives up
		began := time.Now()
		if err := x.s.Close(); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("closed after %s: %v", time.Since(began), err)
		}
		goOn()
		synctest.Wait()
		x.refused("after Close")
	})
	slowly(t, func(x *slowStore) { // what it has to store at the end
		x.r.Close(x.Context())
		x.disk.stall()
		began := time.Now()
		if err := x.s.Close(); time.Since(began) > 2*time.Second {
			t.Errorf("closed after %s: %v", time.Since(began), err)
		}
	})
}
