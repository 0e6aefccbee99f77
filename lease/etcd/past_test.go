package etcdlease_test

import (
	"context"
	"errors"
	"testing"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// An etcd has gone back to before a change, and its revision has passed the old one.
// It would grant what it granted then, and its first answer is refused, whatever was asked.
func TestFirstAnswerOfAnEtcdThatWentBack(t *testing.T) {
	type client struct {
		st      *etcdlease.Store
		reader  lease.ReadSession
		writer  lease.WriteSession
		watcher lease.Watcher
	}
	calls := map[string]func(ctx context.Context, c client) error{
		"OpenReader": func(ctx context.Context, c client) error {
			_, err := c.st.OpenReader(ctx, lease.MaxTTL, "job")
			return err
		},
		"Acquire": func(ctx context.Context, c client) error {
			_, _, err := c.reader.Acquire(ctx, "job", lease.GuardClaim(1))
			return err
		},
		"Next":  func(ctx context.Context, c client) error { _, err := c.watcher.Next(ctx); return err },
		"State": func(ctx context.Context, c client) error { _, err := c.writer.State(ctx, "job"); return err },
		"Await": func(ctx context.Context, c client) error {
			_, err := c.writer.Await(ctx, "job", 0)
			return err
		},
	}
	for name, compacts := range map[string]bool{"written to": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.NewCluster(t, 1)
			restored := cluster.Another(t)
			relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
			open := func() client {
				st := openAt(t, etcdlease.Config{Endpoints: []string{relay.Address()}})
				c := client{st: st, reader: openReader(t, st)}
				err := patiently(t, func(ctx context.Context) (err error) { c.writer, err = st.OpenWriter(ctx, lease.MaxTTL); return err })
				if err != nil {
					t.Fatal(err)
				}
				if c.watcher, err = c.reader.Watch(t.Context(), "job"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.watcher.Close() })
				return c
			}
			leader := open().writer
			var token lease.Token
			err := patiently(t, func(ctx context.Context) (err error) { token, err = leader.Lead(ctx, "job"); return err })
			if err != nil {
				t.Fatal(err)
			}
			change := func(ctx context.Context, c lease.Change) error {
				_, err := lease.Advance(ctx, leader, c)
				return err
			}
			if err := change(t.Context(), lease.Change{Job: "job", Token: token, Wanted: 1}); err != nil {
				t.Fatal(err)
			}
			clients := map[string]client{}
			for name := range calls {
				clients[name] = open()
			}

			relay.Target("")
			cluster.Stop(0)
			cluster.Copy(t, restored)
			cluster.Restart(t, 0)
			relay.Target(cluster.Endpoints()[0])
			err = patiently(t, func(ctx context.Context) error {
				return change(ctx, lease.Change{Job: "job", Token: token, Wanted: 2})
			})
			if err != nil {
				t.Fatal(err)
			}
			for name, c := range clients {
				err := patiently(t, func(ctx context.Context) error {
					if _, err := c.writer.State(ctx, "job"); err != nil {
						return err
					}
					for {
						if seen, err := c.watcher.Next(ctx); err != nil || seen.Guard.Generation == 2 && seen.Guard.Open {
							return err
						}
					}
				})
				if err != nil {
					t.Fatalf("%s: before it went back: %v", name, err)
				}
			}

			restored.Restart(t, 0)
			carry(t, restored, cluster)
			if compacts {
				compact(t, restored)
			} else if _, err := etcdtest.Client(t, restored).Put(t.Context(), "/slicer/lease/job/r/nonce", "news to those that watch"); err != nil {
				t.Fatal(err)
			}
			relay.Target(restored.Endpoints()[0])
			for name, call := range calls {
				c := clients[name]
				if err := patiently(t, func(ctx context.Context) error { return call(ctx, c) }); !errors.Is(err, lease.ErrWentBack) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// Compaction as such is no reason to think that etcd has gone back: a session that has
// spoken to it since goes on over a new connection.
func TestCompactionEndsNoSession(t *testing.T) {
	cluster := etcdtest.NewCluster(t, 1)
	relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
	st := openAt(t, etcdlease.Config{Endpoints: []string{relay.Address()}})
	booted(t, st)
	session := openReader(t, st)
	if _, ok, err := session.Acquire(t.Context(), "job", lease.GuardClaim(1)); err != nil || !ok {
		t.Fatalf("Acquire: %t, %v", ok, err)
	}
	for range 3 {
		if _, err := client(t, cluster).Put(t.Context(), "x", ""); err != nil {
			t.Fatal(err)
		}
	}
	compact(t, cluster)
	if err := patiently(t, session.KeepAlive); err != nil {
		t.Fatal(err)
	}
	relay.Target("")
	relay.Target(cluster.Endpoints()[0])
	if err := patiently(t, session.KeepAlive); err != nil {
		t.Errorf("KeepAlive over a new connection: %v", err)
	}
}
