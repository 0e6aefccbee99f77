package ctl_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/ctl"
)

// TestContextPrecedence: a flag counts before the environment, that before the context, and
// that before the default; what --context names counts before the environment.
func TestContextPrecedence(t *testing.T) {
	file := configFile(t, twoContexts)
	dir := filepath.Dir(file)
	type set struct{ Value, From string }
	none := set{"", "default"}
	curServer, curCert, curKey, curCA := set{"cur:1", "context cur"}, set{dir + "/c.crt", "context cur"}, set{dir + "/c.key", "context cur"}, set{"/abs/ca.crt", "context cur"}
	for name, c := range map[string]struct {
		args                           []string
		env                            map[string]string
		context, server, cert, key, ca set
	}{
		"the current context": {nil, nil, set{"cur", "current"}, curServer, curCert, curKey, curCA},
		"SLICER_CONTEXT":      {nil, map[string]string{ctl.ContextEnv: "plain"}, set{"plain", ctl.ContextEnv}, set{"plain:1", "context plain"}, none, none, none},
		"--context before SLICER_CONTEXT": {[]string{"--context", "cur"}, map[string]string{ctl.ContextEnv: "plain"},
			set{"cur", "--context"}, curServer, curCert, curKey, curCA},
		"no context": {[]string{"--context="}, nil, none, set{"localhost:4720", "default"}, none, none, none},
		"the environment before the context": {nil, map[string]string{ctl.ServerEnv: "env:1", ctl.CAEnv: "e/ca.crt"},
			set{"cur", "current"}, set{"env:1", ctl.ServerEnv}, curCert, curKey, set{"e/ca.crt", ctl.CAEnv}},
		"the environment before that of SLICER_CONTEXT": {nil, map[string]string{ctl.ServerEnv: "env:1", ctl.ContextEnv: "cur"},
			set{"cur", ctl.ContextEnv}, set{"env:1", ctl.ServerEnv}, curCert, curKey, curCA},
		"--context before the environment": {[]string{"--context=plain"}, map[string]string{ctl.ServerEnv: "env:1", ctl.CAEnv: "e/ca.crt", ctl.CertEnv: "e", ctl.KeyEnv: "e"},
			set{"plain", "--context"}, set{"plain:1", "context plain"}, none, none, none},
		"a flag before all": {[]string{"--context", "cur", "--server", "flag:1", "--tls-ca", "f"}, map[string]string{ctl.ServerEnv: "env:1"},
			set{"cur", "--context"}, set{"flag:1", "--server"}, curCert, curKey, set{"f", "--tls-ca"}},
		"a flag before the environment": {[]string{"--server=flag:1"}, map[string]string{ctl.ServerEnv: "env:1"},
			set{"cur", "current"}, set{"flag:1", "--server"}, curCert, curKey, curCA},
		"a flag that takes away": {[]string{"--tls-ca=", "--tls-cert="}, nil, set{"cur", "current"}, curServer, set{"", "--tls-cert"}, set{"", "--tls-key"}, set{"", "--tls-ca"}},
		"a certificate and its key": {[]string{"--tls-cert=f"}, map[string]string{ctl.KeyEnv: "e"},
			set{"cur", "current"}, curServer, set{"f", "--tls-cert"}, set{"", "--tls-key"}, curCA},
		"a key of the environment": {nil, map[string]string{ctl.KeyEnv: "e"}, set{"cur", "current"}, curServer, set{"", ctl.CertEnv}, set{"e", ctl.KeyEnv}, curCA},
		"the environment alone": {[]string{"--context", ""}, map[string]string{ctl.ServerEnv: "env:1", ctl.CertEnv: "c", ctl.KeyEnv: "k"},
			none, set{"env:1", ctl.ServerEnv}, set{"c", ctl.CertEnv}, set{"k", ctl.KeyEnv}, none},
		"variables that are empty": {nil, map[string]string{ctl.ServerEnv: "", ctl.ContextEnv: "", ctl.CAEnv: ""}, set{"cur", "current"}, curServer, curCert, curKey, curCA},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			r := alone(append(slices.Clone(c.args), "--config", file, "--json", "context", "show")...)
			var v struct {
				Config          string
				Context, Server set
				Cert            set `json:"tls_cert"`
				Key             set `json:"tls_key"`
				CA              set `json:"tls_ca"`
			}
			if err := json.Unmarshal([]byte(r.out), &v); err != nil {
				t.Fatalf("exit %d, %s", r.code, r.errs)
			}
			for what, x := range map[string][2]set{"context": {v.Context, c.context}, "server": {v.Server, c.server}, "certificate": {v.Cert, c.cert}, "key": {v.Key, c.key}, "authorities": {v.CA, c.ca}} {
				if x[0] != x[1] {
					t.Errorf("%s: %q of %s, want %q of %s", what, x[0].Value, x[0].From, x[1].Value, x[1].From)
				}
			}
		})
	}
}

// TestContextFile: --config counts before SLICER_CONFIG, that before XDG_CONFIG_HOME, and
// that before the home folder. Only the last two may be missing.
func TestContextFile(t *testing.T) {
	at := func(dir, server string) string {
		file := filepath.Join(dir, "slicer", "config.yaml")
		if r := alone("--config", file, "context", "set", "c", "--server", server); r.code != 0 {
			t.Fatal(r)
		}
		if r := alone("--config", file, "context", "use", "c"); r.code != 0 {
			t.Fatal(r)
		}
		return file
	}
	server := func(args ...string) string {
		r := alone(append(args, "context", "show")...)
		for line := range strings.Lines(r.out) {
			if f := strings.Fields(line); f[0] == "server" {
				return f[1]
			}
		}
		return r.errs
	}
	home, xdg := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	if got := server(); got != "localhost:4720" {
		t.Errorf("without any file: %s", got)
	}
	at(filepath.Join(home, ".config"), "home:1")
	if got := server(); got != "home:1" {
		t.Errorf("in the home folder: %s", got)
	}
	t.Setenv("XDG_CONFIG_HOME", "relative") // which is to be ignored
	if got := server(); got != "home:1" {
		t.Errorf("with a relative XDG_CONFIG_HOME: %s", got)
	}
	t.Setenv("XDG_CONFIG_HOME", xdg)
	if got := server(); got != "localhost:4720" {
		t.Errorf("with an empty XDG_CONFIG_HOME: %s", got)
	}
	at(xdg, "xdg:1")
	if got := server(); got != "xdg:1" {
		t.Errorf("in XDG_CONFIG_HOME: %s", got)
	}
	t.Setenv(ctl.ConfigEnv, at(t.TempDir(), "env:1"))
	if got := server(); got != "env:1" {
		t.Errorf("of SLICER_CONFIG: %s", got)
	}
	if got := server("--config", at(t.TempDir(), "flag:1")); got != "flag:1" {
		t.Errorf("of --config: %s", got)
	}
	t.Setenv(ctl.ConfigEnv, "/nonexistent/config.yaml")
	if got := server(); got != "slicerctl: SLICER_CONFIG: stat /nonexistent/config.yaml: no such file or directory\n" {
		t.Errorf("without the file of SLICER_CONFIG: %s", got)
	}
}
