//go:build system

package etcdlease_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// byEtcdutl restores a snapshot that was taken under load.
func byEtcdutl(t *testing.T, flags ...string) func(*restoring, *etcdtest.Cluster) {
	etcdutl := filepath.Join(t.TempDir(), "etcdutl")
	run(t, "go", "-C", "../../.ci/tools/etcdutl", "build", "-o", etcdutl, "go.etcd.io/etcd/etcdutl/v3")
	return func(r *restoring, restored *etcdtest.Cluster) {
		from, err := client(r.t, r.cluster).Snapshot(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		defer from.Close()
		snapshot := filepath.Join(r.t.TempDir(), "snapshot")
		to, err := os.Create(snapshot)
		if err != nil {
			r.t.Fatal(err)
		}
		defer to.Close()
		if _, err = io.Copy(to, from); err != nil {
			r.t.Fatal(err)
		}
		run(r.t, etcdutl, append(append([]string{"snapshot", "restore", snapshot}, restored.RestoreFlags()...), flags...)...)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func TestStoreGoesBackInAllWays(t *testing.T) {
	plain := byEtcdutl(t)
	bumped := byEtcdutl(t, "--bump-revision", "1000000000", "--mark-compacted")
	for name, c := range map[string]goingBack{
		"etcdutl":                                    {restore: plain},
		"etcdutl, written to":                        {restore: plain, before: (*restoring).carry},
		"etcdutl, suspended, a slicelet anew":        {restore: plain, before: (*restoring).suspend, restart: true},
		"etcdutl bumped":                             {restore: bumped},
		"etcdutl bumped, suspended, a slicelet anew": {restore: bumped, before: (*restoring).suspend, restart: true},
		"restored":                                   {},
		"restored, written to":                       {before: (*restoring).carry},
		"restored, suspended, a slicelet anew":       {before: (*restoring).suspend, restart: true},
		"forced":                                     {forced: true},
		"forced, written to":                         {forced: true, before: (*restoring).carry},
		"forced, suspended, a slicelet anew":         {forced: true, before: (*restoring).suspend, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.forced { // members are stopped one by one, which is to be quick
				t.Parallel()
			}
			c.test(t, 5*time.Second, 10*time.Second)
		})
	}
}
