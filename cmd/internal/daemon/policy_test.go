package daemon_test

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// TestPolicy: each server reads a policy at the start, which it ends if there is none or it
// is no good, and again when told to; then a bad one leaves the old one in force. One that
// knows its clients and has no policy says at the start that all may do everything.
func TestPolicy(t *testing.T) {
	t.Parallel()
	etcd := "--store=etcd://" + etcdtest.NewCluster(t, 1).Endpoints()[0]
	ours := runtest.NewAuthority(t, "ours")
	const warning = "without --policy each certificate of the authorities in --tls-ca may do everything"
	for program, flags := range map[string][]string{
		"assigner":    {etcd},
		"backupdist":  {etcd},
		"distributor": {"--assigners=127.0.0.1:1"},
		"serve":       {"--store=pebble://" + t.TempDir(), "--backup-listen=127.0.0.1:0"},
	} {
		cert, key := ours.Issue(program, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "corp", Path: "/ns/slicer/" + program}}
		})
		flags = append(flags, "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--tls-cert="+cert, "--tls-key="+key)
		plain := runtest.Start(t, program, flags...)
		plain.Where()
		plain.Stop(syscall.SIGTERM)
		if strings.Contains(plain.Text(), warning) {
			t.Errorf("%s: a warning though it knows no client:\n%s", program, plain.Text())
		}
		flags = append(flags, "--tls-ca="+ours.CA)
		all := runtest.Start(t, program, flags...)
		all.Where()
		all.Stop(syscall.SIGTERM)
		if strings.Count(all.Text(), warning) != 1 {
			t.Errorf("%s: want one warning:\n%s", program, all.Text())
		}

		policy := filepath.Join(t.TempDir(), "policy.yaml")
		write := func(text string) {
			if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		flags = append(flags, "--policy="+policy)
		for _, bad := range []struct{ text, want string }{
			{"", "no such file"},
			{"admins: [spiffe://corp/sre]\n", "policy.yaml:1: "},
		} {
			if bad.text != "" {
				write(bad.text)
			}
			code, _, errs := runtest.Execute(programs[program](), append(flags, "--log-level=error")...)
			if code != 1 || !strings.HasPrefix(errs, program+": --policy: ") || !strings.Contains(errs, bad.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("%s with the policy %q: exit %d, %q; want 1 and one line with %q", program, bad.text, code, errs, bad.want)
			}
		}
		write("admin: [spiffe://corp/sre]\n")
		p := runtest.Start(t, program, flags...)
		w := p.Where()
		if strings.Contains(p.Text(), warning) {
			t.Errorf("%s: a warning though it has a policy", program)
		}
		for _, want := range []string{
			`"msg":"policy read","file":"` + policy + `"`, `"msg":"authorities read","file":"` + ours.CA + `","expires":"2`,
			`"msg":"certificate read","file":"` + cert + `","expires":"2`, `"identity":"spiffe://corp/ns/slicer/` + program + `"`,
		} {
			if !strings.Contains(p.Text(), want) {
				t.Errorf("%s: its log has no %s:\n%s", program, want, p.Text())
			}
		}
		write("admin: [spiffe://corp/ops]\n")
		p.Signal(syscall.SIGHUP)
		until(t, program+" reads it again", func() bool { return strings.Contains(p.Text(), `"msg":"policy read again"`) })
		write("admin: {}\n")
		p.Signal(syscall.SIGHUP)
		until(t, program+" refuses a bad one", func() bool { return strings.Contains(p.Text(), "the policy in force stays") })
		const failed = "slicer_access_policy_reload_failures_total 1"
		if _, body := get(t, "http://"+w["http"]+"/metrics"); !strings.Contains(body, failed) || !strings.Contains(body, "slicer_access_policy_loaded_timestamp_seconds 1.") {
			t.Errorf("%s: /metrics has no %s, or no time of loading", program, failed)
		}
		p.Stop(syscall.SIGTERM)
	}
}
