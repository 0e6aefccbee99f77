package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// TestTellsWhere: each command that changes something says where, and no other does.
func TestTellsWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n---\nname: other\n")
	w.tasks("web", "web-0", "web-1", "web-2")
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte("name: web\nmax_replicas: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	generation := w.inspect(w.distributor, "web").Generation
	for _, c := range []struct {
		args  string
		tells bool
	}{
		{"job list", false}, {"job get web", false}, {"inspect web", false}, {"lookup web key", false}, {"explain web key", false}, {"history web", false},
		{"limits web", false}, {"assigners", false}, {"probe web", false}, {"context show", false}, {"job delete other", false /* --yes is missing */},
		{"job apply -f " + file + " --dry-run", true}, {"job apply -f " + file, true},
		{"freeze web", true}, {"unfreeze web", true}, {"pin web --key a --task web-0", true}, {"unpin web --key a", true},
		{"exclude web web-2", true}, {"include web web-2", true}, {"drain web web-1 --wait=false", true}, {"drain web web-1 --undo", true},
		{fmt.Sprint("rollback web ", generation), true}, {"job delete other --yes", true}, {"freeze nothing", true},
	} {
		for _, form := range []string{"", " --json"} {
			r := w.ctl(strings.Fields(c.args + form)...)
			if told := r.told != ""; told != c.tells || strings.Contains(r.errs, "slicerctl: server") {
				t.Errorf("%s: exit %d, tells where: %t, and %q; want %t", c.args+form, r.code, told, r.errs, c.tells)
			}
			if form == "" || !c.tells || r.out == "" {
				continue
			}
			var one map[string]any
			if strings.HasPrefix(r.out, "[") {
				var all []map[string]any
				if err := json.Unmarshal([]byte(r.out), &all); err != nil {
					t.Fatal(err)
				}
				one = all[0]
			} else if err := json.Unmarshal([]byte(r.out), &one); err != nil {
				t.Fatal(err)
			}
			if _, named := one["context"]; one["server"] != w.distributor || named {
				t.Errorf("%s: %s", c.args+form, r.out)
			}
		}
	}
}

// TestContextTLS: a context leads to a control plane that demands certificates, and to no
// other with the same names of files.
func TestContextTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("contexts:\n")
	servers := map[string]string{}
	for _, name := range []string{"prod", "staging"} {
		ca := runtest.NewAuthority(t, name)
		cert, key := ca.Issue("server")
		creds, err := (&run.TLS{Cert: cert, Key: key, CA: ca.CA}).Server()
		if err != nil {
			t.Fatal(err)
		}
		db, err := pebblestore.Open(t.TempDir(), pebblestore.Config{Timeout: waittest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		d := listen(t)
		p, err := plane.Start(plane.Config{ID: name, Store: db, Distributor: d, Backup: listen(t), Credentials: creds})
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
		(&world{t: t, distributor: d.Addr().String()}).eventually(name+" is ready", func() bool { return p.Ready() == nil })
		servers[name] = d.Addr().String()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key = ca.Issue("ada")
		for to, from := range map[string]string{"ada.crt": cert, "ada.key": key, "ca.crt": ca.CA} {
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name, to), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&text, "  %[1]s:\n    server: %[2]s\n    tls_cert: %[1]s/ada.crt\n    tls_key: %[1]s/ada.key\n    tls_ca: %[1]s/ca.crt\n", name, servers[name])
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(in string, args ...string) result {
		var out, errs bytes.Buffer
		code := run.Execute(context.Background(), ctl.New(), append([]string{"--config", file}, args...), strings.NewReader(in), &out, &errs)
		return result{code: code, out: out.String(), errs: errs.String()}
	}
	if r := at("", "context", "use", "staging"); r.code != 0 {
		t.Fatal(r)
	}
	r := at("name: web\n", "job", "apply", "-f", "-")
	if r.code != 0 || r.errs != "slicerctl: context staging, server "+servers["staging"]+"\n" {
		t.Fatalf("%+v", r)
	}
	if r := at("", "--context", "prod", "job", "get", "web"); r.code != 3 || r.errs == "" {
		t.Errorf("a job of staging in prod: %+v", r)
	}
	r = at("name: web\n", "--context", "prod", "--json", "job", "apply", "-f", "-")
	var all []struct{ Result, Server, Context string }
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || len(all) != 1 || all[0].Result != "created" || all[0].Server != servers["prod"] || all[0].Context != "prod" {
		t.Errorf("%+v, %v", r, err)
	}
	// The other plane's certificate is refused, and the line says that the server is not that
	// of the context.
	r = at("", "--context", "prod", "--server", servers["staging"], "--timeout", "5s", "freeze", "web")
	want := "slicerctl: context prod, but server " + servers["staging"] + " of --server\n"
	if r.code != 4 || !strings.HasPrefix(r.errs, want) || strings.Count(r.errs, "\n") != 2 {
		t.Errorf("prod's certificate shown to staging: %+v", r)
	}
	// A prober takes the context's files to other targets.
	if r := at("", "probe", "--target", servers["staging"]); r.code != 3 || !strings.Contains(r.errs, "no servers yet: web") {
		t.Errorf("probe: %+v", r)
	}
	// Nothing of a context is left with an empty one.
	if r := at("", "--context=", "--server", servers["staging"], "--timeout", "5s", "job", "list"); r.code != 4 || !strings.Contains(r.errs, "TLS") {
		t.Errorf("without a context: %+v", r)
	}
}
