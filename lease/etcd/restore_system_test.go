//go:build system

package etcdlease_test

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// suspend does what a restore does for processes that remember nothing.
func (r *restoring) suspend(c *etcdtest.Cluster) {
	st, err := etcdlease.Open(r.t.Context(), etcdlease.Config{Endpoints: c.Endpoints()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer st.Close()
	if err := st.Suspend(r.t.Context(), r.ttl); err != nil {
		r.t.Fatal(err)
	}
}

func TestStoreGoesBackInAllWays(t *testing.T) {
	for name, c := range map[string]goingBack{
		"restored":                             {},
		"restored, written to":                 {before: (*restoring).carry},
		"restored, suspended, a slicelet anew": {before: (*restoring).suspend, restart: true},
		"forced":                               {forced: true},
		"forced, written to":                   {forced: true, before: (*restoring).carry},
		"forced, suspended, a slicelet anew":   {forced: true, before: (*restoring).suspend, restart: true},
	} {
		t.Run(name, func(t *testing.T) { c.test(t, 5*time.Second) })
	}
}
