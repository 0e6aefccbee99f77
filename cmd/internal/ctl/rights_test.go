package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/slicelet"
)

// guarded is a control plane with a policy, for which slicerctl has certificates.
type guarded struct {
	*world
	authority *accesstest.Authority
	files     map[string]accesstest.Files
	log       lines
}

func newGuarded(t *testing.T, policy string) *guarded {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	d, b := listen(t), listen(t)
	g := &guarded{authority: accesstest.New(t), files: map[string]accesstest.Files{}}
	log := slog.New(slog.NewTextHandler(&g.log, nil))
	p, err := plane.Start(plane.Config{
		ID: "a0", Store: db, Distributor: d, Backup: b, Credentials: g.authority.Server("spiffe://corp/plane"), Rights: accesstest.Rights(t, policy, log), Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	g.world = &world{t: t, distributor: d.Addr().String(), backup: b.Addr().String()}
	g.eventually("the control plane is ready", func() bool { return p.Ready() == nil })
	return g
}

func (g *guarded) of(id string) accesstest.Files {
	if _, ok := g.files[id]; !ok {
		g.files[id] = g.authority.Files(id)
	}
	return g.files[id]
}

// as runs slicerctl with the certificate of an identity.
func (g *guarded) as(id, in string, args ...string) result {
	f := g.of(id)
	return g.ctlAt(g.distributor, in, append([]string{"--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA}, args...)...)
}

// serves starts a task of a job and waits until it owns something.
func (g *guarded) serves(id, job, task string) {
	g.t.Helper()
	f := g.of(id)
	tls, err := certs.New(certs.Config{Cert: f.Cert, Key: f.Key, CA: f.CA})
	if err != nil {
		g.t.Fatal(err)
	}
	s, err := slicelet.New(slicelet.Config{Job: job, Task: task, Address: "127.0.0.1:1", Distributors: []string{g.distributor}, DialOptions: tls.DialOptions()})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { s.Close() })
	g.eventually(task+" owns slices", func() bool { return len(s.Slices()) > 0 })
}

// verbsOf reads the table of OPERATIONS: by command, the verbs that it needs.
func verbsOf(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "docs", "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n| `slicerctl` | needs |\n| --- | --- |\n")
	if !ok {
		t.Fatal("OPERATIONS.md has no table of commands and verbs")
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	quoted := regexp.MustCompile("`([^`]+)`")
	all := map[string][]string{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		needs, _, _ := strings.Cut(cells[2], ";")
		var verbs []string
		for _, m := range quoted.FindAllStringSubmatch(needs, -1) {
			if _, err := assignment.ParseVerb(m[1]); err == nil {
				verbs = append(verbs, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			all[m[1]] = verbs
		}
	}
	return all
}

// commands are those that do something, by their names.
func commands(c *cobra.Command, name string) (all []string) {
	for _, sub := range c.Commands() {
		full := strings.TrimSpace(name + " " + sub.Name())
		if sub.HasSubCommands() {
			all = append(all, commands(sub, full)...)
		} else {
			all = append(all, full)
		}
	}
	return all
}

// TestCommandsByVerb holds the table of OPERATIONS to what commands need: who has just these
// verbs is not refused, and who lacks one of them is, for want of it.
func TestCommandsByVerb(t *testing.T) {
	t.Parallel()
	table := verbsOf(t)
	if want, got := slices.Sorted(slices.Values(commands(ctl.New(), ""))), slices.Sorted(maps.Keys(table)); !slices.Equal(got, want) {
		t.Fatalf("the table has the commands %q, want %q", got, want)
	}
	const only, allBut = "spiffe://corp/only/", "spiffe://corp/all-but/"
	implies := map[string]string{"own": "watch", "order": "read", "configure": "read"}
	var names []string
	config := "name: web\naccess:\n"
	for _, verb := range assignment.Verbs {
		names = append(names, verb.String())
	}
	for _, v := range names {
		ids := []string{}
		if v == "own" {
			ids = append(ids, "spiffe://corp/task")
		}
		for _, verbs := range table {
			if id := only + strings.Join(verbs, "-"); slices.Contains(verbs, v) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		for _, x := range names {
			if x != v && implies[v] != x {
				ids = append(ids, allBut+x)
			}
		}
		quoted, _ := json.Marshal(ids)
		config += fmt.Sprintf("  %s: %s\n", v, quoted)
	}
	g := newGuarded(t, "admin: [spiffe://corp/admin]\n")
	if r := g.as("spiffe://corp/admin", config, "job", "apply", "-f", "-"); r.code != 0 {
		t.Fatal(r.errs)
	}
	g.serves("spiffe://corp/task", "web", "web-0")
	changed := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(changed, []byte(config+"zone: elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := map[string]string{
		"job apply": "-f " + changed, "job delete": "web --yes", "job get": "web", "inspect": "web", "history": "web", "explain": "web key", "limits": "web",
		"lookup": "web key", "watch": "web", "top": "web", "probe": "web", "drain": "web nosuch", "freeze": "web", "unfreeze": "web", "pin": "web --key a --task nosuch", "unpin": "web --key a",
		"exclude": "web nosuch", "include": "web nosuch", "rollback": "web 1",
	}
	for command, verbs := range table {
		if len(verbs) == 0 {
			continue
		}
		if args[command] == "" {
			t.Errorf("%s: this test does not know how to call it", command)
			continue
		}
		words := append(strings.Fields(command), strings.Fields(args[command])...)
		for _, v := range verbs {
			if r := g.as(allBut+v, "", words...); r.code == 0 || !strings.Contains(r.errs+r.out, "may not "+v+" job web") {
				t.Errorf("%s without %s: %+v", command, v, r)
			}
		}
		if said := g.begin(only+strings.Join(verbs, "-"), words...); strings.Contains(said, "may not") {
			t.Errorf("%s with %v: %s", command, verbs, said)
		}
	}
}

// begin is as for a command that may have no end: once it has said something it is ended.
func (g *guarded) begin(id string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	f, said := g.of(id), &first{cancel: cancel}
	if args[0] != "watch" && args[0] != "top" {
		said.cancel = func() {}
	}
	run.Execute(ctx, ctl.New(), append([]string{"--server", g.distributor, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA}, args...), strings.NewReader(""), said, said)
	return strings.Join(said.all(), "\n")
}

// first cancels something as soon as anything is written.
type first struct {
	lines
	cancel context.CancelFunc
}

func (f *first) Write(p []byte) (int, error) {
	defer f.cancel()
	return f.lines.Write(p)
}

// TestApplyByRights: what is said of jobs that one may not configure, and a dry run says what
// would be refused for want of rights.
func TestApplyByRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, `
admin: [spiffe://corp/admin]
jobs: {configure: ["spiffe://corp/team/{job}"], read: [spiffe://corp/auditor]}
`)
	const cache, mail, admin, auditor = "spiffe://corp/team/cache", "spiffe://corp/team/mail", "spiffe://corp/admin", "spiffe://corp/auditor"
	const mine = "name: cache\naccess: {configure: [" + cache + "], read: [spiffe://corp/team/reader]}\n"
	const others = "name: cache\naccess: {configure: [" + mail + "]}\n"
	if r := g.as(cache, mine, "job", "apply", "-f", "-", "--dry-run"); r.code != 0 || !strings.Contains(r.out, "job cache would be created") {
		t.Errorf("%+v", r)
	}
	if r := g.as(cache, mine, "job", "apply", "-f", "-"); r.code != 0 {
		t.Fatal(r)
	}
	const lockedOut = "job cache would be refused: with this access identity " + cache + " could not configure it any more: name it in access.configure, or let an administrator apply this"
	for _, x := range []struct {
		id, config, args string
		code             int
		errs             string
	}{
		{mail, mine, "", 1, "identity " + mail + " may not configure job cache"},
		{mail, mine, "--dry-run", 1, "identity " + mail + " may not configure job cache"},
		{"spiffe://corp/team/reader", "name: cache\n", "--dry-run", 1, "job cache would be refused: identity spiffe://corp/team/reader may not configure it"},
		{"spiffe://corp/team/reader", mine, "--dry-run", 0, ""}, // which would change nothing
		{auditor, "name: new\n", "--dry-run", 1, "job new would be refused: identity " + auditor + " may not configure it"},
		{cache, others, "--dry-run", 1, lockedOut},
		{cache, "name: cache\n", "--dry-run", 0, ""}, // what the policy says
		{admin, others, "--dry-run", 0, ""},
		{mail, "name: mail\naccess: {configure: [" + cache + "]}\n", "--dry-run", 1, "job mail would be refused: with this access identity " + mail},
		{"", "name: cache\n", "", 1, "identity anonymous may not configure job cache: the certificate has no SPIFFE URI and no DNS SAN"},
	} {
		r := g.as(x.id, x.config, append([]string{"job", "apply", "-f", "-"}, strings.Fields(x.args)...)...)
		if r.code != x.code || !strings.Contains(r.errs, x.errs) || x.errs == "" && r.errs != "" || strings.Contains(r.errs, "may not read") {
			t.Errorf("%s applies %q %s: %+v, want %d and %s", x.id, x.config, x.args, r, x.code, x.errs)
		}
	}
	// The same in JSON, and nothing of it was done.
	r := g.as(cache, others, "job", "apply", "-f", "-", "--dry-run", "--json")
	var all []struct{ Result, Refused string }
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != 1 || len(all) != 1 || all[0].Result != "updated" || !strings.HasPrefix(all[0].Refused, "with this access identity "+cache) {
		t.Errorf("%+v, %v", r, err)
	}
	if r := g.as(admin, "", "job", "list", "--json"); strings.Count(r.out, `"name"`) != 1 {
		t.Error(r)
	}
	// And it is refused indeed.
	if r := g.as(cache, others, "job", "apply", "-f", "-"); r.code != 1 || !strings.Contains(r.errs, "could not configure the job any more") {
		t.Errorf("%+v", r)
	}
}

// TestInspectIsNotRefused: one who may inspect a job leaves no refusal of anything else, and
// sees which Distributor was asked.
func TestInspectIsNotRefused(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "jobs: {configure: [spiffe://corp/team], own: [spiffe://corp/team]}\n")
	if r := g.as("spiffe://corp/team", "name: web\n", "job", "apply", "-f", "-"); r.code != 0 {
		t.Fatal(r)
	}
	g.serves("spiffe://corp/team", "web", "web-0")
	r := g.as("spiffe://corp/team", "", "inspect", "web", "--json")
	if r.code != 0 || !strings.Contains(r.out, `"distributor": "a0"`) {
		t.Errorf("%+v", r)
	}
	for _, line := range g.log.all() {
		if strings.Contains(line, "audit=refused") {
			t.Error(line)
		}
		if strings.Contains(line, `msg="distributor attached"`) && !strings.Contains(line, "identity=in-process") {
			t.Error(line)
		}
	}
	if !bytes.Contains([]byte(strings.Join(g.log.all(), "\n")), []byte(`msg="distributor attached"`)) {
		t.Error("the log does not say that the Distributor has attached")
	}
}

// A caller of top that may read a job and not watch it leaves one refusal in the audit log, however
// often top looks.
func TestTopIsRefusedOnce(t *testing.T) {
	t.Parallel()
	const task, reader = "spiffe://corp/cache", "spiffe://corp/reader"
	g := newGuarded(t, "admin: [spiffe://corp/admin]\njobs: {own: ["+task+"], watch: ["+task+"], read: ["+reader+"]}\n")
	if r := g.as("spiffe://corp/admin", "name: cache\n", "job", "apply", "-f", "-"); r.code != 0 {
		t.Fatal(r)
	}
	g.serves(task, "cache", "t0")
	f := g.of(reader)
	var out lines
	var errs bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	args := []string{"--server", g.distributor, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA, "top", "cache", "--interval", "100ms"}
	go func() { ended <- run.Execute(ctx, ctl.New(), args, strings.NewReader(""), &out, &errs) }()
	g.eventually("it goes on", func() bool { return strings.Count(strings.Join(out.all(), "\n"), " wanted, load") >= 4 })
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("%d: %s", code, errs.String())
	}
	refusals := 0
	for _, line := range g.log.all() {
		if strings.Contains(line, "audit=refused") && strings.Contains(line, reader) {
			refusals++
		}
	}
	if refusals != 1 {
		t.Errorf("%d refusals of one top", refusals)
	}
}
