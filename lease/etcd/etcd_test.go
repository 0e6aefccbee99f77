package etcdlease_test

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/leasetest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func open(t *testing.T) *etcdlease.Store {
	t.Helper()
	return openAt(t, etcdlease.Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t)})
}

// openAt tries again, as an assigner does for as long as it takes: a member that is slow to
// tell its version is taken for one that is down.
func openAt(t *testing.T, cfg etcdlease.Config) *etcdlease.Store {
	t.Helper()
	st, err := waittest.Answer(lease.ErrUnavailable, func() (*etcdlease.Store, error) { return etcdlease.Open(t.Context(), cfg) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func TestConformance(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(t *testing.T) leasetest.Store {
		st := open(t)
		return leasetest.Store{Readers: st, Writers: st, Suspender: st, TTL: 2 * time.Second}
	})
}
