package ctl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/contexts"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// alone runs slicerctl without a control plane of the test's.
func alone(args ...string) result {
	var out, errs bytes.Buffer
	code := run.Execute(context.Background(), ctl.New(), args, strings.NewReader(""), &out, &errs)
	return result{code: code, out: out.String(), errs: errs.String()}
}

// configFile writes a config file in a folder of its own.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoContexts = `current: cur
contexts:
  cur:
    server: cur:1
    tls_cert: c.crt
    tls_key: c.key
    tls_ca: /abs/ca.crt
  plain:
    server: plain:1
`

// TestContextEdits walks through the life of two contexts.
func TestContextEdits(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "etc", "config.yaml")
	t.Setenv(ctl.ConfigEnv, file)
	t.Chdir(dir)
	for _, c := range []struct {
		args string
		code int
		out  string // FILE stands for the config file
		errs string
	}{
		{"context use dev", 3, "", "slicerctl: there is no context \"dev\", as there is none in FILE: slicerctl context set makes one\n"},
		{"context set dev --tls-ca ca.crt", 2, "", "slicerctl: --server: missing, a new context needs it\n"},
		{"context set dev", 2, "", "slicerctl context set: nothing is given to set: want --server, --tls-cert with --tls-key, or --tls-ca\n"},
		{"context set dev --server dev", 2, "", "slicerctl: --server: \"dev\" is not allowed: want host:port to connect to, with a port of 1 to 65535\n"},
		{"context set a/b --server dev:1", 2, "", "slicerctl: name of a context: \"a/b\" is not allowed: want 1 to 63 printable ASCII characters without space or slash\n"},
		{"context set dev --server dev:1", 0, "context dev created in FILE; to make it current: slicerctl context use dev\n", ""},
		{"context set prod --server prod:1 --tls-cert a.crt", 2, "", "slicerctl: contexts.prod.tls_key is missing: want the file with the key of tls_cert\n"},
		{"context set prod --server prod:1 --tls-cert etc/p/a.crt --tls-key etc/p/a.key --tls-ca ca.crt", 0, "context prod created in FILE; to make it current: slicerctl context use prod\n", ""},
		{"context set prod --server prod:1", 0, "context prod unchanged in FILE; to make it current: slicerctl context use prod\n", ""},
		{"context use prod", 0, "context prod is current in FILE\n", ""},
		{"context set prod --server prod:2", 0, "context prod updated in FILE; it is current\n", ""},
		{"context list", 0, "USED  CONTEXT  SERVER  CERTIFICATE             AUTHORITIES\n      dev      dev:1   -                       -\n*     prod     prod:2  DIR/etc/p/a.crt  DIR/ca.crt\n", ""},
		{"context set prod --tls-cert= --tls-key=", 0, "context prod updated in FILE; it is current\n", ""},
		{"context delete prod", 0, "context deleted from FILE: prod; none is current\n", ""},
		{"context delete prod", 3, "", "slicerctl: there is no context \"prod\" in FILE: want one of: dev\n"},
		{"--context prod job list", 3, "", "slicerctl: --context: there is no context \"prod\" in FILE: want one of: dev\n"},
		{"context", 2, "", "slicerctl context needs a command: one of delete, list, set, show, use (see slicerctl context --help)\n"},
		{"context use", 2, "", "slicerctl context use: NAME is missing (usage: slicerctl context use NAME)\n"},
		{"--timeout 0s context use dev", 2, "", "slicerctl: --timeout: 0s is not allowed: want more than 0\n"},
		{"--json context delete dev", 0, "{\n  \"context\": \"dev\",\n  \"result\": \"deleted\",\n  \"config\": \"FILE\"\n}\n", ""},
		{"--json context list", 0, "[]\n", ""},
	} {
		r := alone(strings.Fields(c.args)...)
		place := strings.NewReplacer("FILE", file, "DIR", dir)
		same := func(got, want string) bool {
			return strings.Join(strings.Fields(got), " ") == strings.Join(strings.Fields(place.Replace(want)), " ")
		}
		if r.code != c.code || !same(r.out, c.out) || !same(r.errs, c.errs) {
			t.Errorf("%s: exit %d\n%s%swant %d\n%s%s", c.args, r.code, r.out, r.errs, c.code, c.out, c.errs)
		}
		if strings.HasPrefix(c.args, "context set prod --server prod:1 --tls-cert etc") {
			// What is in the folder of the file can be moved with it.
			got, err := contexts.Load(file)
			if want := (contexts.Context{Server: "prod:1", Cert: "p/a.crt", Key: "p/a.key", CA: dir + "/ca.crt"}); err != nil || got.Contexts["prod"] != want {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	// What counts before the current context is named.
	if r := alone("context", "set", "dev", "--server", "dev:1"); r.code != 0 {
		t.Fatal(r)
	}
	t.Setenv(ctl.ServerEnv, "elsewhere:1")
	if r := alone("context", "use", "dev"); r.code != 0 || r.errs != "slicerctl: SLICER_SERVER is set, and counts before the current context\n" {
		t.Errorf("%+v", r)
	}
	if r := alone("context", "set", "other", "--server", "other:1"); r.code != 0 {
		t.Fatal(r)
	}
	t.Setenv(ctl.ContextEnv, "other")
	if r := alone("context", "list"); !strings.Contains(r.out, "*     other") || r.errs != "slicerctl: SLICER_CONTEXT counts before the current context, which is dev\n" {
		t.Errorf("%+v", r)
	}
}

// TestContextBadFiles wants one clear line each, and that a command goes nowhere.
func TestContextBadFiles(t *testing.T) {
	dir := t.TempDir()
	unreadable := configFile(t, twoContexts)
	if err := os.Chmod(unreadable, 0); err != nil {
		t.Fatal(err)
	}
	large := configFile(t, strings.Repeat("# 4567\n", 1<<18))
	files := map[string]string{
		configFile(t, "currant: x\n"):                               `:1: field of file: "currant" is not allowed: want current, contexts`,
		configFile(t, "contexts:\n  a: {server: 'x:1', port: 1}\n"): `:2: field of contexts.a: "port" is not allowed: want server, tls_cert, tls_key, tls_ca`,
		configFile(t, "current: a\n"):                               `:1: current: "a" is not allowed: want the name of a context: there is none`,
		configFile(t, twoContexts+"---\n"+twoContexts):              `:11: a second document; all contexts go into one`,
		configFile(t, "\tx"):                                        `: not YAML: found character that cannot start any token`,
		large:                                                       `: 1048577 bytes, at most 1048576 are allowed`,
		dir:                                                         `: a folder is not allowed: want a regular file`,
		filepath.Join(dir, "none"):                                  `: no such file or directory`,
		filepath.Join(large, "below"):                               `: not a directory`,
	}
	if _, err := os.ReadFile(unreadable); errors.Is(err, os.ErrPermission) { // not if root runs this
		files[unreadable] = `: permission denied`
	}
	for file, want := range files {
		for _, args := range [][]string{{"job", "list"}, {"context", "list"}, {"context", "show"}, {"freeze", "web"}, {"probe", "web"}} {
			r := alone(append([]string{"--config", file}, args...)...)
			if r.code != run.ExitFailed || r.out != "" || strings.Count(r.errs, "\n") != 1 || !strings.HasPrefix(r.errs, "slicerctl: --config: ") || !strings.Contains(r.errs, file+want) {
				t.Errorf("%s of %s: exit %d, %q, %q; want %s", args, file, r.code, r.out, r.errs, want)
			}
		}
		if strings.Contains(want, "no such file") {
			continue // that one is made
		}
		before, _ := os.ReadFile(file)
		if r := alone("--config", file, "context", "set", "x", "--server", "x:1"); r.code != run.ExitFailed || strings.Count(r.errs, "\n") != 1 || !strings.Contains(r.errs, filepath.Base(filepath.Dir(file))) {
			t.Errorf("set in %s: %+v", file, r)
		}
		if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
			t.Errorf("%s is changed", file)
		}
		// Without a context the file does not matter, nor does it for what needs no server.
		if r := alone("--config", file, "--context=", "context", "show"); r.code != 0 {
			t.Errorf("without a context: %+v", r)
		}
	}
	missing := configFile(t, "contexts:\n  a:\n    server: 127.0.0.1:1\n    tls_ca: none.crt\n")
	if r := alone("--config", missing, "--context", "a", "job", "list"); r.code != run.ExitFailed || !strings.HasPrefix(r.errs, "slicerctl: --tls-ca: stat "+filepath.Dir(missing)+"/none.crt: ") ||
		!strings.HasSuffix(r.errs, " (context a of "+missing+")\n") {
		t.Errorf("a file of a context that is not there: %+v", r)
	}
	t.Setenv(ctl.ContextEnv, "b")
	if r := alone("--config", missing, "job", "list"); r.code != 3 || r.errs != "slicerctl: SLICER_CONTEXT: there is no context \"b\" in "+missing+": want one of: a\n" {
		t.Errorf("a context that is not there: %+v", r)
	}
	if r := alone("job", "list"); r.code != 3 || r.errs != "slicerctl: SLICER_CONTEXT: there is no context \"b\", as there is none in a config file: slicerctl context set makes one\n" {
		t.Errorf("a context without a file: %+v", r)
	}
}

// TestContextSetsAtOnce: none is lost, and a reader sees the file whole.
func TestContextSetsAtOnce(t *testing.T) {
	t.Parallel()
	file := configFile(t, twoContexts)
	const writers, each = 8, 5
	var wg, reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		for {
			if c, err := contexts.Load(file); err != nil || c.Current != "cur" {
				t.Errorf("%+v, %v", c, err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	want := map[string]bool{"cur": true, "plain": true}
	for w := range writers {
		for i := range each {
			want[fmt.Sprintf("w%d-%d", w, i)] = true
		}
		wg.Go(func() {
			for i := range each {
				if r := alone("--config", file, "--timeout", "1m", "context", "set", fmt.Sprintf("w%d-%d", w, i), "--server", "x:1"); r.code != 0 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	reading.Wait()
	c, err := contexts.Load(file)
	if err != nil || !slices.Equal(c.Names(), slices.Sorted(maps.Keys(want))) {
		t.Errorf("%v, %v; want %v", c, err, want)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestContextCompletion(t *testing.T) {
	t.Parallel()
	file := configFile(t, twoContexts)
	for _, c := range []struct {
		args string
		want string
	}{
		{"--context|", "cur plain :4"}, {"--context|p", "plain :4"}, {"context|use|", "cur plain :4"}, {"context|delete|c", "cur :4"},
		{"context|set|pl", "plain :4"}, {"context|use|cur|", ":4"}, {"context|show|", ":4"},
	} {
		r := alone(append([]string{"__complete", "--config", file}, strings.Split(c.args, "|")...)...)
		if got := strings.Join(strings.Fields(r.out), " "); got != c.want {
			t.Errorf("%s completes to %q, want %q", c.args, got, c.want)
		}
	}
	if r := alone("__complete", "--config", filepath.Dir(file), "--context", ""); strings.TrimSpace(r.out) != ":4" {
		t.Errorf("without a file: %+v", r)
	}
}
