package ctl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicer-project/slicer/cmd/internal/contexts"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Variables of the environment. An empty one counts as one that is not set.
const (
	ServerEnv  = "SLICER_SERVER"
	CertEnv    = "SLICER_TLS_CERT"
	KeyEnv     = "SLICER_TLS_KEY"
	CAEnv      = "SLICER_TLS_CA"
	ContextEnv = "SLICER_CONTEXT"
	ConfigEnv  = "SLICER_CONFIG"
)

// Flags that say where a command goes, and the environment's variables for them.
const (
	serverFlag = "server"
	certFlag   = "tls-cert"
	keyFlag    = "tls-key"
	caFlag     = "tls-ca"
)

var envOf = map[string]string{serverFlag: ServerEnv, certFlag: CertEnv, keyFlag: KeyEnv, caFlag: CAEnv}

// byDefault is where a setting comes from that nothing says.
const byDefault = "default"

// setting is a value and what says it: a flag, a variable, a context, or byDefault.
type setting struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// target is the control plane that a command goes to, and what to connect to it with.
type target struct {
	// config is the file that was read, empty if none was.
	config string
	// context is the chosen one's name, empty if there is none.
	context               setting
	server, cert, key, ca setting
}

// reached says in JSON where an order went.
type reached struct {
	Server string `json:"server"`
	// Context is the one that names the server, if one does.
	Context string `json:"context,omitempty"`
}

// source is one of the places that settings come from, by names of flags.
type source struct {
	from func(flag string) string
	get  func(flag string) (value string, ok bool)
}

// locator finds where a command goes.
type locator struct {
	flags *pflag.FlagSet // of the whole program
}

// target puts together what flags, environment and contexts say. What a flag says counts
// before the environment, and that before the context; but a context that --context names
// is a flag's too, and the environment does not count then: one that is left from before
// must not lead a command elsewhere. Certificate and key come from one source.
func (l *locator) target() (*target, error) {
	cfg, t, err := l.chosen()
	if err != nil {
		return nil, err
	}
	sources := []source{{
		func(flag string) string { return "--" + flag },
		func(flag string) (string, bool) { f := l.flags.Lookup(flag); return f.Value.String(), f.Changed },
	}}
	if t.context.From != "--context" {
		sources = append(sources, source{
			func(flag string) string { return envOf[flag] },
			func(flag string) (string, bool) { v := os.Getenv(envOf[flag]); return v, v != "" },
		})
	}
	if t.context.Value != "" {
		said := settings(cfg.Contexts[t.context.Value], filepath.Dir(t.config))
		sources = append(sources, source{
			func(string) string { return "context " + t.context.Value },
			func(flag string) (string, bool) { return said[flag], said[flag] != "" },
		})
	}
	sources = append(sources, source{
		func(string) string { return byDefault },
		func(flag string) (string, bool) { return l.flags.Lookup(flag).DefValue, true },
	})
	t.server = choose(sources, serverFlag)[0]
	t.ca = choose(sources, caFlag)[0]
	pair := choose(sources, certFlag, keyFlag)
	t.cert, t.key = pair[0], pair[1]
	return t, run.CheckDialable(t.server.From, t.server.Value)
}

// settings are what a context says, with names of files that do not depend on the folder
// that slicerctl is run in.
func settings(x contexts.Context, folder string) map[string]string {
	file := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(folder, name)
	}
	return map[string]string{serverFlag: x.Server, certFlag: file(x.Cert), keyFlag: file(x.Key), caFlag: file(x.CA)}
}

// choose takes settings that belong together from the first source that has one of them.
func choose(sources []source, flags ...string) []setting {
	for _, s := range sources {
		all, some := make([]setting, 0, len(flags)), false
		for _, flag := range flags {
			value, ok := s.get(flag)
			all, some = append(all, setting{value, s.from(flag)}), some || ok
		}
		if some {
			return all
		}
	}
	return nil // the last one has all
}

// chosen reads the config file, and finds the context that flag, environment or file choose.
func (l *locator) chosen() (*contexts.Config, *target, error) {
	name := setting{os.Getenv(ContextEnv), ContextEnv}
	if f := l.flags.Lookup("context"); f.Changed {
		name = setting{f.Value.String(), "--context"}
		if name.Value == "" { // without a context, and without the file
			return nil, &target{context: setting{From: byDefault}}, nil
		}
	}
	cfg, path, err := l.load()
	if err != nil {
		return nil, nil, err
	}
	t := &target{config: path, context: name}
	if name.Value == "" {
		t.context = setting{cfg.Current, "current"}
		if cfg.Current == "" {
			t.context.From = byDefault
		}
		return cfg, t, nil
	}
	if _, ok := cfg.Contexts[name.Value]; !ok {
		return nil, nil, notFoundf("%s: %s", name.From, unknownContext(name.Value, or(path, "a config file"), cfg))
	}
	return cfg, t, nil
}

// load reads the config file. One that no flag and no variable names may be missing:
// the path is empty then, and the config too.
func (l *locator) load() (cfg *contexts.Config, path string, err error) {
	path, from := l.path()
	if path != "" {
		cfg, err = contexts.Load(path)
		switch {
		case err == nil:
			return cfg, path, nil
		case from != byDefault:
			return nil, "", fmt.Errorf("%s: %w", from, err)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, "", err
		}
	}
	cfg, err = contexts.Parse("", nil)
	return cfg, "", err
}

// path is where the config file is, or would be, and what says so. It is empty if
// nothing does.
func (l *locator) path() (path, from string) {
	if f := l.flags.Lookup("config"); f.Changed {
		path, from = f.Value.String(), "--config"
	} else if v := os.Getenv(ConfigEnv); v != "" {
		path, from = v, ConfigEnv
	} else {
		from = byDefault
		// A relative one is to be ignored, says the XDG Base Directory Specification.
		if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
			path = filepath.Join(dir, "slicer", "config.yaml")
		} else if home, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(home, ".config", "slicer", "config.yaml")
		}
	}
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		path = abs
	}
	return path, from
}

// tls says how to connect.
func (t *target) tls() *run.TLS {
	return &run.TLS{Cert: t.cert.Value, Key: t.key.Value, CA: t.ca.Value}
}

// blame adds to an error about TLS files what names them, where no flag does.
func (t *target) blame(err error) error {
	from := t.cert.From
	if strings.HasPrefix(err.Error(), "--"+caFlag) {
		from = t.ca.From
	}
	switch {
	case strings.HasPrefix(from, "context "):
		return fmt.Errorf("%w (%s of %s)", err, from, t.config)
	case strings.HasPrefix(from, "--"):
		return err
	}
	return fmt.Errorf("%w (%s)", err, from)
}

// ofContext reports whether the chosen context names the server.
func (t *target) ofContext() bool { return strings.HasPrefix(t.server.From, "context ") }

// String names the control plane, in one line.
func (t *target) String() string {
	switch {
	case t.context.Value == "":
		return "server " + t.server.Value
	case !t.ofContext():
		return fmt.Sprintf("context %s, but server %s of %s", t.context.Value, t.server.Value, t.server.From)
	}
	return fmt.Sprintf("context %s, server %s", t.context.Value, t.server.Value)
}

// reached is the same for programs.
func (t *target) reached() reached {
	r := reached{Server: t.server.Value}
	if t.ofContext() {
		r.Context = t.context.Value
	}
	return r
}

// tell names on standard error where a command is about to change something.
func tell(w io.Writer, where string) { fmt.Fprintf(w, "slicerctl: %s\n", where) }

// bind adds the flags that say where commands go.
func (l *locator) bind(cmd *cobra.Command, server string) {
	l.flags = cmd.PersistentFlags()
	l.flags.String(serverFlag, server, "`host:port` of a Distributor, or of a Backup Distributor; else what "+ServerEnv+" says, then the context")
	l.flags.String("context", "", "`name` of the context to use; else what "+ContextEnv+" says, then the current one; with '' none is used")
	l.flags.String("config", "", "`file` with contexts; else what "+ConfigEnv+" says, then $XDG_CONFIG_HOME/slicer/config.yaml, then ~/.config/slicer/config.yaml")
	new(run.TLS).Bind(cmd)
	for flag, usage := range map[string]string{
		certFlag: "PEM `file` with your certificate, to show to the server",
		keyFlag:  "PEM `file` with the certificate's key",
		caFlag:   "PEM `file` with the authorities that must have signed the server's certificate",
	} {
		l.flags.Lookup(flag).Usage = usage + "; else what " + envOf[flag] + " says, then the context"
	}
	must(cmd.RegisterFlagCompletionFunc("context", l.complete))
}
