package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

const twoJobs = "name: web\nmax_replicas: 4\nbalance:\n  interval: 3s\n---\nname: ledger\nmode: consistent\nlease_duration: 1s\n"

// command runs slicerctl and wants this exit code, and these words in what it prints.
func command(t *testing.T, code int, words string, args ...string) string {
	t.Helper()
	got, out, errs := slicerctl(t, args...)
	if got != code || !strings.Contains(out+errs, words) {
		t.Fatalf("slicerctl %s: exit %d\n%s%s\nwant %d and %q", strings.Join(args, " "), got, out, errs, code, words)
	}
	return out
}

// changes is command for what changes a store, which it has to name on standard error.
func changes(t *testing.T, words, url string, args ...string) {
	t.Helper()
	got, out, errs := slicerctl(t, append(args, "--store="+url)...)
	if got != 0 || !strings.Contains(out, words) || !strings.Contains(errs, "slicerctl: store "+url+"\n") {
		t.Fatalf("slicerctl %s: exit %d\n%s%s\nwant %q, and the name of the store", strings.Join(args, " "), got, out, errs, words)
	}
}

func jobsFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte(twoJobs), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// generationOf waits until a job has an assignment.
func generationOf(t *testing.T, addr, job string) (g int64) {
	t.Helper()
	until(t, job+" has an assignment", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		i, err := admin(t, addr).InspectJob(ctx, &slicerv1.InspectJobRequest{Job: job})
		if err == nil {
			g = i.GetGeneration()
		}
		return g != 0
	})
	return g
}

// corrupt flips a bit in a record.
func corrupt(t *testing.T, m maintenance.Medium, key string) {
	t.Helper()
	s, err := m.Snapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	done := false
	for _, kv := range s.Records {
		if kv.Key == key {
			value := bytes.Clone(kv.Value)
			value[len(value)-1] ^= 1
			err = m.Apply(t.Context(), []maintenance.Update{{Key: key, Was: kv.Value, Value: value}})
			done = true
		}
	}
	if err := errors.Join(err, m.Close()); err != nil || !done {
		t.Fatalf("corrupt %s: %v, %v", key, done, err)
	}
}

// TestStoreOfServe: the store of "slicer serve" is checked, backed up, damaged, repaired
// from its history, and put back to the backup.
func TestStoreOfServe(t *testing.T) {
	t.Parallel()
	dir, backup := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "backup")
	url := "pebble://" + dir
	at := "--store=" + url
	command(t, 1, "there is no store in it", "store", "check", at)
	p := runtest.Start(t, "serve", serveArgs(dir)...)
	w := p.Where()
	becomesReady(t, w["http"])
	command(t, 0, "job ledger created", "--server="+w["listen"], "job", "apply", "-f", jobsFile(t))
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: "t0", Address: "127.0.0.1:1", Distributors: []string{w["listen"]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	g := generationOf(t, w["listen"], "web")
	for _, c := range [][]string{{"check"}, {"dump"}, {"backup", backup}, {"repair"}} {
		command(t, 1, "stop the process", append([]string{"store", at}, c...)...)
	}
	p.Stop(syscall.SIGTERM)

	command(t, 0, "2 jobs", "store", "check", at)
	command(t, 0, `jobs/web/config`, "store", "dump", at, "--job=web", "--json")
	command(t, 0, "records of", "store", "backup", backup, at)
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	m, err := pebblestore.OpenMedium(t.Context(), dir, pebblestore.Config{}, pebblestore.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	corrupt(t, m, "jobs/web/config")
	command(t, 6, "jobs/web/config", "store", "check", at)
	command(t, 0, "1 would be mended", "store", "repair", at, "--dry-run")
	command(t, 6, "1 fault", "store", "check", at)
	command(t, 2, "--yes is needed", "store", "repair", at)
	changes(t, "1 mended", url, "store", "repair", "--yes")
	command(t, 0, "2 jobs", "store", "check", at)
	p = runtest.Start(t, "serve", serveArgs(dir)...)
	w = p.Where()
	becomesReady(t, w["http"])
	if out := command(t, 0, "", "--server="+w["listen"], "job", "get", "web"); !strings.Contains(out, "max_replicas: 4") || !strings.Contains(out, "interval: 3s") {
		t.Errorf("repaired from its history: %s", out)
	}
	command(t, 0, "deleted", "--server="+w["listen"], "job", "delete", "ledger", "--yes")
	p.Stop(syscall.SIGTERM)

	command(t, 1, "--force replaces them", "store", "restore", backup, at)
	command(t, 0, "nothing is granted for", "store", "restore", backup, at, "--dry-run")
	command(t, 0, `"store": "`+url+`"`, "store", "restore", backup, at, "--dry-run", "--json")
	changes(t, "restored", url, "store", "restore", backup, "--force", "--reason=test")
	command(t, 0, "2 jobs", "store", "check", at)
	p = runtest.Start(t, "serve", serveArgs(dir)...)
	w = p.Where()
	becomesReady(t, w["http"])
	if now := generationOf(t, w["listen"], "web"); now <= g {
		t.Errorf("generation %d after the restore, %d before", now, g)
	}
	command(t, 0, "restore the store", "--server="+w["listen"], "history", "web")
	p.Stop(syscall.SIGTERM)

	if err := os.Truncate(backup, 100); err != nil {
		t.Fatal(err)
	}
	command(t, 1, "not a good backup", "store", "restore", backup, at, "--force")
	command(t, 0, "2 jobs", "store", "check", at)
}

// TestStoreInEtcd: a store in etcd is checked, repaired from a file and backed up while an
// assigner runs on it, and restored once that is stopped.
func TestStoreInEtcd(t *testing.T) {
	t.Parallel()
	url := "etcd://" + etcdtest.NewCluster(t, 1).Endpoints()[0] + "/slicer"
	at, backup := "--store="+url, filepath.Join(t.TempDir(), "backup")
	command(t, 3, "there is no store", "store", "backup", backup, at)
	start := func() (a *runtest.Process, d map[string]string) {
		a = runtest.Start(t, "assigner", at, "--listen=127.0.0.1:0", "--http=127.0.0.1:0")
		d = runtest.Start(t, "distributor", "--assigners="+a.Where()["listen"], "--listen=127.0.0.1:0", "--http=127.0.0.1:0").Where()
		becomesReady(t, d["http"])
		return a, d
	}
	a, d := start()
	file := jobsFile(t)
	until(t, "jobs are made", func() bool {
		code, _, _ := slicerctl(t, "--server="+d["listen"], "job", "apply", "-f", file)
		return code == 0
	})
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: "t0", Address: "127.0.0.1:1", Distributors: []string{d["listen"]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	g := generationOf(t, d["listen"], "web")

	m, err := etcdstore.OpenMedium(etcdstore.Config{Endpoints: []string{strings.TrimSuffix(strings.TrimPrefix(url, "etcd://"), "/slicer")}})
	if err != nil {
		t.Fatal(err)
	}
	corrupt(t, m, "jobs/web/config")
	command(t, 6, "jobs/web/config", "store", "check", at)
	command(t, 0, "write it from "+file, "store", "repair", at, "-f", file, "--yes")
	command(t, 0, "2 jobs", "store", "check", at)
	command(t, 0, "records of "+url, "store", "backup", backup, at)
	until(t, "the assigner is registered", func() bool {
		_, out, _ := slicerctl(t, "store", "check", at)
		return strings.Contains(out, "1 assigner")
	})
	command(t, 1, "assigners are registered", "store", "restore", backup, at)
	a.Stop(syscall.SIGTERM)

	command(t, 0, "restored", "store", "restore", backup, at, "--force")
	command(t, 0, "2 jobs", "store", "check", at)
	_, d = start()
	if now := generationOf(t, d["listen"], "web"); now <= g {
		t.Errorf("generation %d after the restore, %d before", now, g)
	}
	command(t, 4, "store unavailable", "--timeout=500ms", "store", "check", "--store=etcd://127.0.0.1:1/slicer")
}
