package etcdlease_test

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/leasetest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func open(t *testing.T) *etcdlease.Store {
	t.Helper()
	st, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: etcdtest.Start(t), Prefix: etcdtest.Prefix(t)})
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
