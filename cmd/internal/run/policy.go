package run

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

const (
	// policyPoll is how often a policy's file is looked at. A change is read when the file
	// was the same twice, so that none is read that is being written.
	policyPoll = time.Second
	// maxPolicySize bounds the file, bytes.
	maxPolicySize = 1 << 20
)

// BindPolicy adds --policy to a command.
func (f *Flags) BindPolicy(cmd *cobra.Command) {
	f.Policy = cmd.Flags().String("policy", "", "YAML `file` with the identities that are the control plane's, administrators', and what holds for jobs that do not say it themselves; needs --tls-ca, by which identities are known; read again when it changes. Without it all may do everything")
}

func (f *Flags) validatePolicy() error {
	if f.Policy != nil && *f.Policy != "" && f.TLS.CA == "" {
		return Usagef("--tls-ca: missing, --policy needs it: an identity is that of a verified certificate")
	}
	return nil
}

// policyFile keeps the rights of a process at what a file says. It goes by what is in the
// file, which is small: its times, size and inode may be those of another content.
type policyFile struct {
	path   string
	rights *enforce.Rights
	log    *slog.Logger

	mu     sync.Mutex
	latest content // at the last look
	tried  content // what was put in force last, or was no good
	bad    error   // why that is not in force, nil if it is
}

// content is what is in a file, or why that cannot be read.
type content struct {
	text []byte
	err  error
}

func (c content) same(o content) bool {
	if c.err != nil || o.err != nil {
		return c.err != nil && o.err != nil && c.err.Error() == o.err.Error()
	}
	return bytes.Equal(c.text, o.text)
}

// openPolicy reads a file for the first time, and there is none to fall back to.
func openPolicy(path string, log *slog.Logger, reg prometheus.Registerer) (*policyFile, error) {
	f := &policyFile{path: path, log: log}
	f.latest = readContent(path)
	f.tried = f.latest
	policy, err := f.latest.parse(path)
	if err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	if f.rights, err = enforce.New(enforce.Config{Policy: policy, Logger: log, Registerer: reg}); err != nil {
		return nil, err
	}
	log.Info("policy read", "file", path)
	return f, nil
}

func readContent(path string) (c content) {
	// To open a pipe is to wait for its other end.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return content{err: fmt.Errorf("%s: not a regular file, as it has to be", path)}
	}
	file, err := os.Open(path)
	if err != nil {
		return content{err: err}
	}
	defer file.Close()
	c.text, c.err = io.ReadAll(io.LimitReader(file, maxPolicySize+1))
	return c
}

func (c content) parse(path string) (*access.Policy, error) {
	switch {
	case c.err != nil:
		return nil, c.err
	case len(c.text) > maxPolicySize:
		return nil, fmt.Errorf("%s: it has more than %d bytes, as many as are allowed", path, maxPolicySize)
	}
	return access.Parse(path, c.text)
}

// poll puts in force what is in the file if that has changed, and was the same at the last
// look.
func (f *policyFile) poll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := readContent(f.path)
	settled := now.same(f.latest)
	f.latest = now
	if settled && !now.same(f.tried) {
		f.put(now)
	}
}

// reread puts in force what is in the file, or says that nothing is new.
func (f *policyFile) reread() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest = readContent(f.path)
	switch {
	case !f.latest.same(f.tried):
		f.put(f.latest)
	case f.bad != nil:
		f.log.Error("the policy in force stays", "file", f.path, "error", f.bad)
	default:
		f.log.Info("SIGHUP: the policy has not changed", "file", f.path)
	}
}

// put puts a content in force, if it is a good one.
func (f *policyFile) put(c content) {
	f.tried = c
	policy, err := c.parse(f.path)
	if f.bad = err; err != nil {
		f.rights.PolicyFailed()
		f.log.Error("the policy in force stays", "file", f.path, "error", err)
		return
	}
	f.rights.SetPolicy(policy)
	f.log.Info("policy read again", "file", f.path)
}

// watch polls until quit is closed.
func (f *policyFile) watch(quit <-chan struct{}) {
	ticks := time.NewTicker(policyPoll)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			f.poll()
		case <-quit:
			return
		}
	}
}
