package run

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment"
)

// Default ports. gRPC ports end in 0, the HTTP port of the same program in 1.
const (
	AssignerPort    = 4710
	DistributorPort = 4720
	BackupPort      = 4730
	// ProxyHTTPPort is that of slicerproxy's --http; the others' is the next after their own.
	ProxyHTTPPort = 4741
)

// Flags are those that every server has, with the same name and meaning.
type Flags struct {
	Listen, Advertise, HTTP string
	ID, Zone                string
	Log                     LogFlags
	HTTPTLS                 string // how --http is secured
	TLS                     TLS
	Plain                   PlainText
	// Policy is the file of --policy; nil for commands that have no such flag.
	Policy *string
}

// LogFlags say what is logged, and in which form.
type LogFlags struct{ Level, Format string }

// Bind adds the flags to a command. The ports are those of the defaults; host
// is where to serve gRPC by default, empty for every interface.
func (f *Flags) Bind(cmd *cobra.Command, host string, port int) {
	fs := cmd.Flags()
	fs.StringVar(&f.Listen, "listen", net.JoinHostPort(host, strconv.Itoa(port)), "`host:port` to serve gRPC on; port 0 takes a free one")
	fs.StringVar(&f.Advertise, "advertise", "", "`host:port` at which others reach this process (default: that of --listen, with the environment's POD_IP, else this host's name, where --listen names no host)")
	f.BindHTTP(cmd, port+1, ", /debug/pprof/ and, but for a backup distributor, the status page")
	fs.StringVar(&f.ID, "id", "", "`name` of this process among its kind, unique (default: host name and port)")
	fs.StringVar(&f.Zone, "zone", "", "`zone` that this process runs in, such as a datacenter's name")
	fs.BoolVar(&f.Plain.Allowed, "insecure", false, "serve gRPC in plain text though other machines may reach it; without TLS it is needed wherever the address is not loopback")
	f.BindLog(cmd)
	f.BindTLS(cmd)
}

// BindHTTP adds --http, by default a port of this machine alone, which every program keeps to:
// what is there tells much, and is in plain text. last is what it serves last.
func (f *Flags) BindHTTP(cmd *cobra.Command, port int, last string) {
	cmd.Flags().StringVar(&f.HTTP, "http", net.JoinHostPort("localhost", strconv.Itoa(port)),
		"`host:port` to serve /metrics, /healthz, /readyz, /loglevel"+last+" on, in plain HTTP but for --http-tls; other machines reach it without a host, as :PORT; empty for none")
}

// BindTLS adds the flags that say how connections are secured.
func (f *Flags) BindTLS(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.HTTPTLS, "http-tls", httpPlain, httpTLSUsage)
	f.TLS.Bind(cmd)
}

// BindLog adds the flags that say what is logged.
func (f *Flags) BindLog(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.Log.Level, "log-level", "info", "least `level` to log: debug, info, warn or error; PUT /loglevel at --http changes it")
	fs.StringVar(&f.Log.Format, "log-format", "text", "`format` of the log on standard error: text or json")
}

// Validate names the first flag whose value is not allowed.
func (f *Flags) Validate() error {
	if err := CheckAddress("--listen", f.Listen); err != nil {
		return err
	}
	if f.Advertise != "" {
		if err := CheckDialable("--advertise", f.Advertise); err != nil {
			return err
		}
	}
	if f.HTTP != "" {
		if err := CheckAddress("--http", f.HTTP); err != nil {
			return err
		}
	}
	for _, t := range []struct{ flag, value string }{{"--id", f.ID}, {"--zone", f.Zone}} {
		if t.value != "" && !assignment.ValidToken(t.value, 63) {
			return Usagef("%s: %q is not allowed: want at most 63 printable ASCII characters without space or slash", t.flag, assignment.Clip(t.value, 80))
		}
	}
	if _, err := f.Logger(io.Discard); err != nil {
		return err
	}
	if err := f.TLS.validateServer(); err != nil {
		return err
	}
	if err := f.validatePolicy(); err != nil {
		return err
	}
	for _, name := range f.Plain.PageNames {
		if !assignment.ValidToken(name, 253) || strings.Contains(name, ":") {
			return Usagef("--http-names: %q is not allowed: want names of hosts, without ports", assignment.Clip(name, 80))
		}
	}
	return f.validateHTTP()
}

// BindPage adds what a command takes that shows the status page.
func (f *Flags) BindPage(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.Plain.PageNames, "http-names", nil, "`names` by which browsers may ask for the status page in plain HTTP when there is no --policy, besides localhost, addresses, this host's name and that of --http; repeatable")
}

// PageNames are the names of this host by which the status page may be asked for, in lower case.
func (f *Flags) PageNames() []string {
	names := []string{hostOf(f.HTTP)}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		names = append(names, name, short)
	}
	names = append(names, f.Plain.PageNames...)
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	return names
}

// Logger writes what --log-level and --log-format ask for.
func (f *Flags) Logger(w io.Writer) (*slog.Logger, error) {
	l, err := f.Log.open(w)
	if err != nil {
		return nil, err
	}
	return l.log, nil
}

// Advertised is what to tell others, once it is known where the process listens.
func (f *Flags) Advertised(bound net.Addr) (string, error) {
	if f.Advertise != "" {
		return f.Advertise, nil
	}
	_, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(f.Listen)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		// A pod's name is none that other pods can resolve.
		if host = os.Getenv("POD_IP"); host != "" {
			if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
				return "", Usagef("POD_IP: %q is not allowed: want the IP address of one interface", assignment.Clip(host, 80))
			}
		} else if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("find this host's name, which --advertise is derived from: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// Identity is --id, or the advertised address in a form fit for an id.
func (f *Flags) Identity(advertised string) string {
	if f.ID != "" {
		return f.ID
	}
	host, port, _ := net.SplitHostPort(advertised)
	// An id is a token of at most 63 bytes.
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || r == '/' {
			return '-'
		}
		return r
	}, host)
	return host[:min(len(host), 63-1-len(port))] + "-" + port
}

// CheckAddress reports whether a value is host:port, where the host may be empty.
func CheckAddress(flag, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		if n, perr := strconv.Atoi(port); perr != nil || n < 0 || n > 65535 {
			err = errors.New("bad port")
		}
	}
	if err != nil || strings.ContainsAny(value, " /") {
		return Usagef("%s: %q is not allowed: want host:port with a port of 0 to 65535", flag, assignment.Clip(value, 80))
	}
	return nil
}

// CheckDialable reports whether a value is host:port of a server to connect to.
func CheckDialable(flag, value string) error {
	if host, port, _ := net.SplitHostPort(value); CheckAddress(flag, value) != nil || host == "" || port == "0" {
		return Usagef("%s: %q is not allowed: want host:port to connect to, with a port of 1 to 65535", flag, assignment.Clip(value, 80))
	}
	return nil
}
