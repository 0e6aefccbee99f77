package run_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// server is a command with the flags of every server.
func server(f *run.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "server", Args: run.Args(), RunE: func(*cobra.Command, []string) error { return f.Validate() }}
	f.Bind(cmd, "", 4700)
	return cmd
}

func TestFlagsRefused(t *testing.T) {
	for arg, want := range map[string]string{
		"--listen=4700":                   `server: --listen: "4700" is not allowed: want host:port with a port of 0 to 65535`,
		"--listen=:70000":                 `server: --listen: ":70000" is not allowed: want host:port with a port of 0 to 65535`,
		"--listen=a b:1":                  `server: --listen: "a b:1" is not allowed`,
		"--http=x":                        `server: --http: "x" is not allowed`,
		"--advertise=:4700":               `server: --advertise: ":4700" is not allowed: want host:port to connect to, with a port of 1 to 65535`,
		"--advertise=h:0":                 `server: --advertise: "h:0" is not allowed`,
		"--log-level=loud":                `server: --log-level: "loud" is not allowed: want debug, info, warn or error`,
		"--log-format=xml":                `server: --log-format: "xml" is not allowed: want text or json`,
		"--id=a/b":                        `server: --id: "a/b" is not allowed`,
		"--zone=a b":                      `server: --zone: "a b" is not allowed`,
		"--tls-cert=c.pem":                `server: --tls-key: missing, --tls-cert needs it`,
		"--tls-key=k.pem":                 `server: --tls-cert: missing, --tls-key needs it`,
		"--tls-ca=ca.pem":                 `server: --tls-cert: missing, a server needs one to check its clients by --tls-ca`,
		"--http-tls=on":                   `server: --http-tls: "on" is not allowed: want none, server or mutual`,
		"--http-tls=server":               `server: --tls-cert: missing, --http-tls server needs it`,
		"--id=" + strings.Repeat("x", 64): `server: --id: "xxxx`,
		"extra":                           `server: server: unexpected argument "extra"`,
	} {
		code, _, errs := exec(server(&run.Flags{}), arg)
		if code != run.ExitUsage || !strings.HasPrefix(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want 2, %q", arg, code, errs, want)
		}
	}
	if code, _, errs := exec(server(&run.Flags{}), "--http=", "--zone=eu-1", "--listen=127.0.0.1:0", "--advertise=web.example:4700"); code != 0 {
		t.Errorf("good flags: exit %d, %q", code, errs)
	}
}

func TestAdvertised(t *testing.T) {
	bound := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234}
	for _, c := range []struct {
		listen, advertise, addr, id string
	}{
		{"127.0.0.1:0", "", "127.0.0.1:1234", "127.0.0.1-1234"},
		{"web.example:1234", "", "web.example:1234", "web.example-1234"},
		{":0", "lb.example:99", "lb.example:99", "lb.example-99"},
		{"[::1]:1234", "", "[::1]:1234", "::1-1234"},
	} {
		f := run.Flags{Listen: c.listen, Advertise: c.advertise}
		addr, err := f.Advertised(bound)
		if err != nil || addr != c.addr || f.Identity(addr) != c.id {
			t.Errorf("--listen %s --advertise %q: %s, id %s, %v; want %s, id %s", c.listen, c.advertise, addr, f.Identity(addr), err, c.addr, c.id)
		}
	}
	for _, any := range []string{":1234", "0.0.0.0:1234", "[::]:1234"} {
		f := run.Flags{Listen: any}
		addr, err := f.Advertised(bound)
		if host, port, _ := net.SplitHostPort(addr); err != nil || host == "" || net.ParseIP(host).IsUnspecified() || port != "1234" {
			t.Errorf("--listen %s is advertised as %q, %v", any, addr, err)
		}
	}
	for ip, want := range map[string]string{"10.1.2.3": "10.1.2.3:1234", "fd00::7": "[fd00::7]:1234", "::": "", "pod": ""} {
		t.Setenv("POD_IP", ip)
		f := run.Flags{Listen: ":1234"}
		if addr, err := f.Advertised(bound); addr != want || (err != nil) != (want == "") {
			t.Errorf("in the pod %s: %q, %v; want %q", ip, addr, err, want)
		}
		f = run.Flags{Listen: "127.0.0.1:0"}
		if addr, err := f.Advertised(bound); addr != "127.0.0.1:1234" {
			t.Errorf("in the pod %s, at loopback: %q, %v", ip, addr, err)
		}
	}
}

func TestLogger(t *testing.T) {
	var b strings.Builder
	f := run.Flags{Log: run.LogFlags{Level: "warn", Format: "json"}}
	log, err := f.Logger(&b)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("no")
	log.Warn("yes", "n", 1)
	if s := b.String(); !strings.HasPrefix(s, "{") || strings.Contains(s, `"no"`) || !strings.Contains(s, `"msg":"yes","n":1`) {
		t.Errorf("logged %q", s)
	}
	if _, err := (&run.Flags{Log: run.LogFlags{Level: "info", Format: "text"}}).Logger(io.Discard); err != nil {
		t.Error(err)
	}
}
