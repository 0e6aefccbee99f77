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

// policyFile keeps the rights of a process at what a file says.
type policyFile struct {
	path   string
	rights *enforce.Rights
	log    *slog.Logger

	mu     sync.Mutex
	latest os.FileInfo // at the last look; nil if there was none
	read   os.FileInfo // when it was read last, nil if there was none
	text   []byte      // what was read last, nil if it could not be read
	bad    error       // why that is not in force, nil if it is
}

// openPolicy reads a file for the first time, and there is none to fall back to.
func openPolicy(path string, log *slog.Logger, reg prometheus.Registerer) (*policyFile, error) {
	f := &policyFile{path: path, log: log}
	f.look()
	f.read = f.latest
	text, policy, err := readPolicy(path)
	if err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	f.text = text
	if f.rights, err = enforce.New(enforce.Config{Policy: policy, Logger: log, Registerer: reg}); err != nil {
		return nil, err
	}
	return f, nil
}

func readPolicy(path string) ([]byte, *access.Policy, error) {
	// To open a pipe is to wait for its other end.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file, as it has to be", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPolicySize+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(text) > maxPolicySize:
		return text, nil, fmt.Errorf("%s: it has more than %d bytes, as many as are allowed", path, maxPolicySize)
	}
	policy, err := access.Parse(path, text)
	return text, policy, err
}

// look takes note of the file as it is, and reports whether it is as at the last look.
// Stat follows links, so that a link that leads to another file is a change.
func (f *policyFile) look() (same bool) {
	info, err := os.Stat(f.path)
	if err != nil {
		info = nil
	}
	same = sameFile(info, f.latest)
	f.latest = info
	return same
}

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// poll reads the file if it has changed.
func (f *policyFile) poll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.look() && !sameFile(f.latest, f.read) {
		f.reload()
	}
}

// reread reads the file whether it has changed or not, and says so.
func (f *policyFile) reread() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	switch {
	case f.reload():
	case f.bad != nil:
		f.log.Error("the policy in force stays", "file", f.path, "error", f.bad)
	default:
		f.log.Info("SIGHUP: the policy has not changed", "file", f.path)
	}
}

// reload puts in force what the file says now, and reports whether it says something new.
func (f *policyFile) reload() (news bool) {
	f.read = f.latest
	text, policy, err := readPolicy(f.path)
	if text != nil && bytes.Equal(text, f.text) {
		return false
	}
	f.text, f.bad = text, err
	if err != nil {
		f.rights.PolicyFailed()
		f.log.Error("the policy in force stays", "file", f.path, "error", err)
		return true
	}
	f.rights.SetPolicy(policy)
	f.log.Info("policy read again", "file", f.path)
	return true
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
