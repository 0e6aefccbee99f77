package etcdlease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A session that an etcd which has gone back knows, and renews, is over all the
// same. Nothing but its keepalive speaks to that etcd, so that nothing else finds out.
func TestKeepAliveNoticesThatEtcdWentBack(t *testing.T) {
	for name, c := range map[string]struct {
		holds   bool // the session acquires after the backup; else another one does
		carried bool // past the revision at which the session was there
	}{
		"written to, and what is held is not there":     {holds: true, carried: true},
		"at a lower revision, and what is held is gone": {holds: true},
		"at a lower revision, and nothing is held":      {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.NewCluster(t, 1)
			restored := cluster.Another(t)
			relay := etcdtest.NewRelay(t, cluster.Endpoints()[0])
			st := openAt(t, etcdlease.Config{Endpoints: []string{relay.Address()}})
			booted(t, st)
			session := openReader(t, st)

			relay.Target("")
			cluster.Stop(0)
			cluster.Copy(t, restored)
			cluster.Restart(t, 0)
			relay.Target(cluster.Endpoints()[0])
			holder := session
			if !c.holds {
				holder = openReader(t, st)
			}
			err := patiently(t, func(ctx context.Context) error {
				_, ok, err := holder.Acquire(ctx, "job", lease.GuardClaim(1))
				if err == nil && !ok {
					err = errors.New("refused")
				}
				return err
			})
			if err != nil {
				t.Fatalf("Acquire: %v", err)
			}
			if err := patiently(t, session.KeepAlive); err != nil {
				t.Fatalf("KeepAlive before it went back: %v", err)
			}

			restored.Restart(t, 0)
			if c.carried {
				carry(t, restored, cluster)
			}
			relay.Target(restored.Endpoints()[0])
			if err := patiently(t, session.KeepAlive); !errors.Is(err, lease.ErrWentBack) {
				t.Errorf("KeepAlive after it went back: %v", err)
			}
		})
	}
}

// A lease that is shorter than the session's does not count as renewed. Here
// another client has taken the session's lease away and granted its number anew.
func TestShorterRenewalDoesNotCount(t *testing.T) {
	cluster := etcdtest.NewCluster(t, 1)
	session := openReader(t, openAt(t, etcdlease.Config{Endpoints: cluster.Endpoints()}))
	if err := patiently(t, session.KeepAlive); err != nil {
		t.Fatalf("KeepAlive: %v", err)
	}
	cl := etcdtest.Client(t, cluster)
	if _, err := cl.Revoke(t.Context(), clientv3.LeaseID(session.ID())); err != nil {
		t.Fatal(err)
	}
	shorter := &etcdserverpb.LeaseGrantRequest{ID: int64(session.ID()), TTL: int64((lease.MaxTTL - time.Second) / time.Second)}
	if _, err := etcdserverpb.NewLeaseClient(cl.ActiveConnection()).LeaseGrant(t.Context(), shorter); err != nil {
		t.Fatal(err)
	}
	if err := session.KeepAlive(t.Context()); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("KeepAlive that grants a second less: %v", err)
	}
}

// booted brings generation 1 of a job in force.
func booted(t *testing.T, st *etcdlease.Store) {
	t.Helper()
	w, token := lead(t, st)
	if _, err := lease.Advance(t.Context(), w, lease.Change{Job: "job", Token: token, Wanted: 1}); err != nil {
		t.Fatal(err)
	}
}

// lead opens an assigner's session, which leads a job.
func lead(t *testing.T, st *etcdlease.Store) (w lease.WriteSession, token lease.Token) {
	t.Helper()
	err := patiently(t, func(ctx context.Context) (err error) { w, err = st.OpenWriter(ctx, lease.MaxTTL); return err })
	if err == nil {
		err = patiently(t, func(ctx context.Context) (err error) { token, err = w.Lead(ctx, "job"); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	return w, token
}

func openReader(t *testing.T, st *etcdlease.Store) (session lease.ReadSession) {
	t.Helper()
	err := patiently(t, func(ctx context.Context) (err error) {
		session, err = st.OpenReader(ctx, lease.MaxTTL, "job")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// patiently tries until etcd answers, since a connection to it may be made anew, and
// returns what it says.
func patiently(t *testing.T, try func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	for {
		if err := try(ctx); !errors.Is(err, lease.ErrUnavailable) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
