package front_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
)

// steady is a lease time that is long enough for a machine on which much else runs: what
// ends belief is then no lack of processor time.
const steady = 20 * time.Second

// Fronts die one after the other, and come back: sessions go on at another, no task
// stops to believe, and changes are carried out.
func TestSessionsMoveToAnotherFront(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 2)
	f := newFleet(t, b.direct, steady, b.readers(), b.readers(), b.readers())
	f.advance(1)
	stop := f.look()
	g := assignment.Generation(2)
	for range 2 {
		for _, dies := range b.fronts {
			b.kill(dies)
			f.advance(g)
			b.start(dies)
			f.advance(g + 1)
			g += 2
		}
	}
	if looks, without := stop(); without > 0 {
		t.Errorf("tasks believed in nothing in %d of %d looks, and one front of two was there all the time", without, looks)
	}
}

// The only front restarts: it knows no session, and each goes on.
func TestSessionsOutliveARestart(t *testing.T) {
	t.Parallel()
	b := newBed(t, etcdtest.Start(t), 1)
	f := newFleet(t, b.direct, steady, b.readers(), b.readers())
	f.advance(1)
	stop := f.look()
	b.kill(b.fronts[0])
	b.start(b.fronts[0])
	f.advance(2)
	if looks, without := stop(); without > 0 {
		t.Errorf("tasks believed in nothing in %d of %d looks", without, looks)
	}
}

// A front that is cut off from etcd renews nothing, whatever it is asked: belief has ended
// when etcd lets the leases run out.
func TestFrontWithoutEtcd(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Start(t)
	b := newBed(t, endpoints, 1)
	relay := etcdtest.NewRelay(t, endpoints[0])
	b.cfg.Endpoints = []string{relay.Address()} // of the front, which opens it later
	f := newFleet(t, b.direct, 2*time.Second, b.readers(), b.readers())
	f.advance(1)
	stop := f.look()
	relay.Target("")
	f.eventually("the leases run out", func() bool {
		st, err := f.w.State(t.Context(), "job")
		return err == nil && st.GuardReaders == 0
	})
	for i, j := range f.parts {
		if j.Belief() != nil {
			t.Errorf("task %d believes, and its lease is gone", i)
		}
	}
	relay.Target(endpoints[0])
	f.advance(2)
	stop()
}

// A session that moves to a front which has seen nothing tells it what it was told and
// holds: an etcd that has gone back is found out, as by a process that speaks to it itself.
func TestMovedSessionNoticesThatEtcdWentBack(t *testing.T) {
	for name, c := range map[string]struct {
		holds   bool // the session acquires after the backup
		told    bool // the records change after the backup, and the session is told
		carried bool // past the revision at which the session was
	}{
		"at a lower revision":                           {},
		"written to, and what is held is not there":     {holds: true, carried: true},
		"written to, and the records were others":       {told: true, carried: true},
		"at a lower revision, and what is held is gone": {holds: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.NewCluster(t, 1)
			restored := cluster.Another(t)
			relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
			b := newBed(t, []string{relay.Address()}, 2)
			f := newFleet(t, b.direct, lease.MaxTTL)
			f.advance(1)
			first := remoteTo(t, b.fronts[0])
			session, err := waittest.Answer(lease.ErrUnavailable, func() (lease.ReadSession, error) { return first.OpenReader(t.Context(), lease.MaxTTL, "job") })
			if err != nil {
				t.Fatal(err)
			}

			relay.Target("")
			cluster.Stop(0)
			cluster.Copy(t, restored)
			cluster.Restart(t, 0)
			relay.Target(cluster.Endpoints()[0])
			must(t, "KeepAlive", session.KeepAlive)
			if c.told {
				must(t, "change", func(ctx context.Context) error {
					_, err := lease.Advance(ctx, f.w, lease.Change{Job: "job", Token: f.token, Wanted: 2})
					return err
				})
			}
			if c.holds {
				must(t, "Acquire", func(ctx context.Context) error {
					_, ok, err := session.Acquire(ctx, "job", lease.GuardClaim(1))
					if err == nil && !ok {
						err = errors.New("refused")
					}
					return err
				})
			}
			if c.told {
				w, err := session.Watch(t.Context(), "job")
				if err != nil {
					t.Fatal(err)
				}
				for seen := (lease.Seen{}); seen.Guard != (lease.Guard{Generation: 2, Open: true}); {
					if seen, err = w.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				w.Close()
			}
			if _, err := etcdtest.Client(t, cluster).Put(t.Context(), "x", ""); err != nil {
				t.Fatal(err)
			}
			must(t, "KeepAlive once more", session.KeepAlive)

			restored.Restart(t, 0)
			if c.carried {
				past, client := revision(t, cluster)+100, etcdtest.Client(t, restored)
				for range past {
					if _, err := client.Put(t.Context(), "x", ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			relay.Target(restored.Endpoints()[0])
			b.kill(b.fronts[0])
			b.start(b.fronts[0]) // and has seen nothing
			if err := patiently(t, session.KeepAlive); !errors.Is(err, lease.ErrWentBack) {
				t.Errorf("KeepAlive at a front that has seen nothing: %v", err)
			}
			if _, _, err := session.Acquire(t.Context(), "job", lease.GuardClaim(1)); !errors.Is(err, lease.ErrLost) {
				t.Errorf("Acquire in a session that is over: %v", err)
			}
		})
	}
}

// The same front finds it out by itself, and answers each session so.
func TestFrontNoticesThatEtcdWentBack(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.NewCluster(t, 1)
	restored := cluster.Another(t)
	relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
	b := newBed(t, []string{relay.Address()}, 1)
	f := newFleet(t, b.direct, lease.MaxTTL)
	f.advance(1)
	readers := b.readers()
	session, err := waittest.Answer(lease.ErrUnavailable, func() (lease.ReadSession, error) { return readers.OpenReader(t.Context(), lease.MaxTTL, "job") })
	if err != nil {
		t.Fatal(err)
	}
	relay.Target("")
	cluster.Stop(0)
	cluster.Copy(t, restored)
	cluster.Restart(t, 0)
	relay.Target(cluster.Endpoints()[0])
	for i := range 3 {
		if _, err := etcdtest.Client(t, cluster).Put(t.Context(), "x", string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "KeepAlive", session.KeepAlive)
	restored.Restart(t, 0)
	relay.Target(restored.Endpoints()[0])
	if err := patiently(t, session.KeepAlive); !errors.Is(err, lease.ErrWentBack) {
		t.Errorf("KeepAlive: %v", err)
	}
}

func revision(t *testing.T, c *etcdtest.Cluster) int64 {
	t.Helper()
	resp, err := etcdtest.Client(t, c).Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// remoteTo reaches one front.
func remoteTo(t *testing.T, f *served) *remote.Store {
	t.Helper()
	return remote.New(dial(t, f.relay.Address()))
}

func must(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	if err := patiently(t, do); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// patiently tries until etcd answers, since a connection to it may be made anew, and
// returns what it says.
func patiently(t *testing.T, try func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	for {
		call, end := context.WithTimeout(ctx, 10*time.Second)
		err := try(call)
		end()
		if !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
