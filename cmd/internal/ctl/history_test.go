package ctl_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestHistoryOfConfigs follows a job from its making to its deletion and beyond.
func TestHistoryOfConfigs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.ctl("history", "web"); r.code != 3 || r.out != "" {
		t.Errorf("of a job that never was: exit %d %q %q", r.code, r.out, r.errs)
	}
	apply := func(yaml string, args ...string) {
		t.Helper()
		if r := w.ctlAt(w.distributor, yaml, append([]string{"job", "apply", "-f", "-"}, args...)...); r.code != 0 {
			t.Fatalf("apply: exit %d: %s", r.code, r.errs)
		}
	}
	apply("name: web\nmax_replicas: 4\n", "--reason", "a new service")
	apply("name: web\nmax_replicas: 4\n") // changes nothing
	apply("name: web\nzone: eu-1\n", "--as", "bob", "--reason", "black friday")
	w.must("freeze", "web")
	w.must("job", "delete", "web", "--yes", "--reason", "moved away")
	want := []string{
		"create job: max_replicas: 10 -> 4 by ada: a new service",
		`change job: max_replicas: 4 -> 10, zone: "" -> eu-1 by bob: black friday`,
		"freeze by ada: ",
		"delete job by ada: moved away",
	}
	check := func() {
		t.Helper()
		var got []string
		for i, e := range w.history().Entries {
			got = append(got, e.Action+" by "+e.Who+": "+e.Why)
			if e.Order != int64(i+1) || e.Assigner != "a0" || !strings.HasPrefix(e.Peer, "127.0.0.1:") {
				t.Errorf("entry %d is %+v", i, e)
			}
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("history\n%s\nwant\n%s", a, b)
		}
	}
	check()
	w.says(`(?m)^20.* +- +ada \(127.0.0.1:\d+ via in-process\) +delete job +moved away$`, "history", "web", "--wide")
	if r := w.ctl("explain", "web", "key"); r.code != 3 {
		t.Errorf("explain: exit %d %q %q", r.code, r.out, r.errs)
	}
	if r := w.ctl("job", "delete", "web", "--yes"); r.code != 3 {
		t.Errorf("deleted again: exit %d %q", r.code, r.errs)
	}
	apply("name: web\n")
	want = append(want, "create job by ada: ")
	check()

	// What is in force counts from the new job's beginning.
	if got := w.must("inspect", "web"); strings.Contains(got, "frozen") {
		t.Errorf("the job made anew:\n%s", got)
	}
	w.says(`\(order 6\)`, "freeze", "web", "--for", "1m")
	want = append(want, "freeze for 1m0s by ada: ")

	// A client that says nothing about itself is taken, too.
	conn, err := grpc.NewClient(w.distributor, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	admin := slicerv1.NewAdminServiceClient(conn)
	if _, err := admin.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "web", History: 200}}); err != nil {
		t.Fatal(err)
	}
	want = append(want, "change job: history: 100 -> 200 by unknown: ")
	check()
	w.says(`unknown \(127.0.0.1:\d+ via in-process\) +change job: history: 100 -> 200 +-\n`, "history", "web", "--wide")
	w.says(`unknown +change job: history: 100 -> 200\n`, "history", "web")
	var last struct {
		Entries []struct{ Who string }
	}
	if err := json.Unmarshal([]byte(w.must("history", "web", "--limit", "1", "--json")), &last); err != nil || len(last.Entries) != 1 || last.Entries[0].Who != "unknown" {
		t.Errorf("%+v, %v", last, err)
	}
}

// TestHistoryFits is of words that are as long as they may be.
func TestHistoryFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\nzone: eu-west-1a\nmin_replicas: 2\nmax_replicas: 4\nhistory: 200\nload_metric: cpu\nheartbeat_timeout: 6s\nlease_duration: 7s\n")
	why := strings.TrimSpace(strings.Repeat("overload ", 56))
	w.must("freeze", "web", "--as", strings.Repeat("é", 64), "--reason", why)
	wide, narrow := w.must("history", "web", "--wide"), w.must("history", "web")
	if n := strings.Count(wide, "\n"); n != 3 {
		t.Errorf("%d lines for two entries:\n%s", n, wide)
	}
	for line := range strings.Lines(narrow) {
		if n := utf8.RuneCountInString(line); n > 121 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	for _, text := range []string{wide, narrow} {
		words := strings.Join(strings.Fields(text), " ")
		for _, want := range []string{"min_replicas: 1 -> 2", `zone: "" -> eu-west-1a`, why} {
			if !strings.Contains(words, want) {
				t.Errorf("%q is missing in:\n%s", want, text)
			}
		}
	}
}
