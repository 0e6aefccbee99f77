package ctl_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// TestAccessCheck asks an assigner without a policy, and files with one.
func TestAccessCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\naccess:\n  own: [\"spiffe://corp/ns/web/task/{task}\"]\n  configure: [spiffe://corp/ann]\n")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("admin: [spiffe://corp/root]\njobs: {watch: [\"spiffe://corp/**\"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("admins: [x]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args string
		code int
		out  string
		errs string
	}{
		{"web --verb own", 0, "yes: anonymous may own job web (no policy)\n", ""},
		{"web --verb order --as spiffe://corp/ann", 0, "yes: spiffe://corp/ann may order job web (no policy)\n", ""},
		{"web --verb own --as spiffe://corp/ns/web/task/a --task a --policy " + policy, 0,
			"yes: spiffe://corp/ns/web/task/a may own job web as task a (access of the job, own: spiffe://corp/ns/web/task/{task})\n", ""},
		{"web --verb own --as spiffe://corp/ns/web/task/a --task b --policy " + policy, 1,
			"no: spiffe://corp/ns/web/task/a may not own job web as task b (access of the job, no pattern)\n", ""},
		{"web --verb own --as spiffe://corp/ns/web/task/a --policy " + policy, 1,
			"no: spiffe://corp/ns/web/task/a may not own job web (access of the job, no pattern); no pattern with {task} fits without --task\n", ""},
		{"web --verb order --as spiffe://corp/root --policy " + policy, 0, "yes: spiffe://corp/root may order job web (policy admin: spiffe://corp/root)\n", ""},
		{"later --verb watch --as spiffe://corp/bob --policy " + policy, 0, "yes: spiffe://corp/bob may watch job later (policy jobs, watch: spiffe://corp/**); there is no such job, so the policy alone decides\n", ""},
		{"later --verb watch", 0, "yes: anonymous may watch job later (no policy); there is no such job, so the policy alone decides\n", ""},
		{"web", run.ExitUsage, "", "--verb"},
		{"web --verb plane", run.ExitUsage, "", "--verb"},
		{"web --verb own --as Ann", run.ExitUsage, "", "--as"},
		{"web --verb read --task a", run.ExitUsage, "", "--task"},
		{"web --verb own --task a/\x01", run.ExitUsage, "", "--task"},
		{"no/job --verb own", run.ExitUsage, "", "no/job"},
		{"web --verb own --policy " + policy, run.ExitUsage, "", "--as is missing"},
		{"web --verb own --as spiffe://corp/ann --policy " + bad, 1, "", "bad.yaml:1: "},
		{"web --verb own --as spiffe://corp/ann --policy " + bad + ".none", 1, "", "no such file"},
	} {
		r := w.ctl(append([]string{"access", "check"}, strings.Fields(x.args)...)...)
		if r.code != x.code || r.out != x.out || !strings.Contains(r.errs, x.errs) || x.errs == "" && r.errs != "" {
			t.Errorf("%s: %+v, want %d %q %q", x.args, r, x.code, x.out, x.errs)
		}
	}
	r := w.ctl("access", "check", "web", "--verb", "own", "--as", "spiffe://corp/eve", "--policy", policy, "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 1 || r.errs != "" || got["allowed"] != false || got["identity"] != "spiffe://corp/eve" ||
		got["verb"] != "own" || got["job"] != "web" || got["rule"] != "access of the job, no pattern" || got["policy"] != policy {
		t.Errorf("%+v, %v", r, err)
	}
	// What a job says itself is seen with it.
	var job struct {
		MaxTasks  int                 `json:"max_tasks"`
		CreatedBy string              `json:"created_by"`
		Access    map[string][]string `json:"access"`
	}
	if err := json.Unmarshal([]byte(w.must("job", "get", "web", "--json")), &job); err != nil || job.MaxTasks != 10000 || job.CreatedBy != "anonymous" ||
		len(job.Access) != 2 || job.Access["own"][0] != "spiffe://corp/ns/web/task/{task}" {
		t.Errorf("job get: %+v, %v", job, err)
	}
}

// TestExplainUnassigned: explain says of a job without tasks what lookup says.
func TestExplainUnassigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	if r := w.ctl("explain", "web", "ada"); r.code != 3 || r.errs != "slicerctl: job \"web\": it has no assignment yet\n" {
		t.Errorf("%+v", r)
	}
}
