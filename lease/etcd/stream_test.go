package etcdlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// etcd leaves the stream of a process's watches without an answer, while it renews the
// session. A watch that stands is begun anew on another stream and tells of a change, and
// one that begins does so in the end: a reader that heard of no recall would hold up its
// job for as long as it lives.
func TestWatchThatIsSilent(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t)[0]
	prefix := etcdtest.Prefix(t)
	direct := openAt(t, etcdlease.Config{Endpoints: []string{endpoint}, Prefix: prefix})
	f := etcdtest.NewForwarder(t, endpoint)
	st := openAt(t, etcdlease.Config{Endpoints: []string{f.Address()}, Prefix: prefix})
	var session lease.ReadSession
	if err := patiently(t, func(ctx context.Context) (err error) {
		session, err = st.OpenReader(ctx, time.Minute, "job")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stands, err := session.Watch(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stands.Close() })
	if _, err := stands.Next(t.Context()); err != nil {
		t.Fatal(err)
	}

	f.Stick()
	booted(t, direct)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			seen, err := stands.Next(ctx)
			if err == nil && seen.Guard.Generation == 0 {
				continue
			}
			if err != nil || seen.Guard.Generation != 1 {
				t.Errorf("the watch that stands: %+v, %v", seen, err)
			}
			return
		}
	})
	for {
		begins, err := session.Watch(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		seen, err := begins.Next(ctx)
		if err := begins.Close(); err != nil {
			t.Error(err)
		}
		if err == nil && seen.Guard.Generation == 1 {
			return
		}
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("a watch that begins: %+v, %v", seen, err)
		}
	}
}

// The watch by which an assigner follows a job falls silent: a change that waits for a
// reader goes on when the reader lets go, not a second later each time.
func TestFollowerThatIsSilent(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t)[0]
	prefix := etcdtest.Prefix(t)
	f := etcdtest.NewForwarder(t, endpoint)
	st := openAt(t, etcdlease.Config{Endpoints: []string{f.Address()}, Prefix: prefix})
	var w lease.WriteSession
	if err := patiently(t, func(ctx context.Context) (err error) { w, err = st.OpenWriter(ctx, time.Minute); return err }); err != nil {
		t.Fatal(err)
	}
	token, err := w.Lead(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	change := lease.Change{Job: "job", Token: token, Wanted: 1}
	if _, err := lease.Advance(t.Context(), w, change); err != nil {
		t.Fatal(err)
	}
	f.Stick()
	// Each of its four steps is followed by a wait of at most a second for what the watch tells.
	for change.Wanted = 2; change.Wanted < 5; change.Wanted++ {
		if _, err := lease.Advance(t.Context(), w, change); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st1, err := w.State(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	for {
		st2, err := w.Await(ctx, "job", st1.Revision-1)
		if err == nil && st2.Head == 4 {
			return
		}
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("%+v, %v", st2, err)
		}
	}
}
