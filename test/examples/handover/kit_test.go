package handover

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// unit is servers of the map and a client, in one process and without Slicer.
type unit struct {
	*testing.T
	env    *slicertest.Env
	client Client
}

func newUnit(t *testing.T, mode assignment.Mode) *unit {
	u := &unit{T: t, env: slicertest.New(t)}
	if mode == assignment.Consistent {
		u.env.Consistent("entries")
	}
	u.client.HTTP.Transport = u.transport()
	t.Cleanup(u.client.HTTP.CloseIdleConnections)
	u.client.Clerk = u.env.Clerk(clerk.Config{Job: "entries"})
	return u
}

func (u *unit) transport() *http.Transport { return &http.Transport{DialContext: u.env.DialContext} }

// server starts one; drain ends it as SIGTERM ends the program.
func (u *unit) server(task string) (drain func()) {
	lis := u.env.Listen(task)
	s := u.env.Slicelet(slicelet.Config{Job: "entries", Task: task})
	entries := newServer(s, u.transport())
	server := &http.Server{Handler: entries}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(lis) // until it is closed
	}()
	// Its listener, which asks all others for what it has been given, is not to ask one that joins and
	// does not serve yet: Slicelet would wait for the listener, and this for the server.
	synctest.Wait()
	u.Cleanup(func() {
		_ = server.Close()
		<-served
		entries.peers.CloseIdleConnections()
	})
	return func() {
		ctx, cancel := context.WithTimeout(u.Context(), time.Minute)
		defer cancel()
		for _, step := range []func(context.Context) error{s.Drain, entries.Emptied, server.Shutdown} {
			if err := step(ctx); err != nil {
				u.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			u.Error(err)
		}
	}
}

func (u *unit) put(key string, n uint64) {
	u.Helper()
	if err := u.client.Put(u.Context(), key, n); err != nil {
		u.Error(err)
	}
}

func (u *unit) get(key string, want uint64) {
	u.Helper()
	if n, ok, err := u.client.Get(u.Context(), key); n != want || !ok || err != nil {
		u.Errorf("%q is %d, %t, %v, want %d", key, n, ok, err, want)
	}
}

// An entry is where its key is when Assign returns: the listener has fetched it.
func TestUnitEntriesMoveWithTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, assignment.Affinity)
		u.server("entries-0")
		u.server("entries-1")
		for n, task := range []string{"entries-0", "entries-1", "entries-1", "entries-0"} {
			u.env.Assign("entries", slicertest.Key("ada", task))
			if n > 0 {
				u.get("ada", uint64(n))
			}
			u.put("ada", uint64(n+1))
		}
	})
}

// A client that asks the former owner is sent on, and waits until it has heard who has the key.
func TestUnitClientBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, assignment.Affinity)
		u.server("entries-0")
		u.server("entries-1")
		u.client.Clerk = u.env.Clerk(clerk.Config{Job: "entries", ClientID: "late"})
		u.env.Assign("entries", slicertest.Key("ada", "entries-0"))
		u.put("ada", 1)
		release := u.env.Hold("late")
		u.env.Assign("entries", slicertest.Key("ada", "entries-1"))
		began := time.Now()
		time.AfterFunc(3*time.Second, release)
		u.get("ada", 1)
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("answered after %s, want as soon as the client has heard, after 3s", took)
		}
	})
}

// A server that drains goes with nothing.
func TestUnitDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, assignment.Affinity)
		drain := u.server("entries-0")
		for i := range 50 {
			u.put(fmt.Sprint(i), uint64(i))
		}
		u.server("entries-1")
		drain()
		for i := range 50 {
			u.get(fmt.Sprint(i), uint64(i))
		}
	})
}

// In consistent mode a server that has lost its lease refuses, as the entry may have changed elsewhere;
// what it had is fetched from it all the same, since it still has it in memory.
func TestUnitConsistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, assignment.Consistent)
		u.server("entries-0")
		u.server("entries-1")
		u.env.Assign("entries", slicertest.Key("ada", "entries-0"))
		u.put("ada", 1)
		regain := u.env.Lose("entries-0")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, ok, err := u.client.Get(ctx, "ada"); err == nil {
			t.Errorf("ada is %d, %t from a server without a lease", n, ok)
		}
		u.env.Assign("entries", slicertest.Key("ada", "entries-1"))
		u.get("ada", 1)
		u.put("ada", 2)
		regain()
		u.get("ada", 2)
		u.env.Assign("entries", slicertest.Key("ada", "entries-0"))
		u.get("ada", 2)
	})
}
