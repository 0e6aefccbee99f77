package daemon_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/porttest"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
)

// TestHangup: SIGHUP ends none of the servers. The
// certificate is read again at once, whatever the times of its files are; one that is
// no good leaves the old one in use.
func TestHangup(t *testing.T) {
	t.Parallel()
	etcd := "--store=etcd://" + etcdtest.NewCluster(t, 1).Endpoints()[0]
	ours := runtest.NewAuthority(t, "ours")
	for program, flags := range map[string][]string{
		"assigner":    {etcd},
		"backupdist":  {etcd},
		"distributor": {"--assigners=127.0.0.1:1"},
		"serve":       {"--store=pebble://" + t.TempDir(), "--backup-listen=127.0.0.1:0"},
	} {
		flags = append(flags, "--listen=127.0.0.1:0", "--http=127.0.0.1:0")
		plain := runtest.Start(t, program, flags...)
		plain.Where()
		plain.Signal(syscall.SIGHUP)
		until(t, program+" says that there is nothing to read", func() bool { return strings.Contains(plain.Text(), "SIGHUP: nothing to read again") })
		plain.Stop(syscall.SIGTERM)

		cert, key := ours.Issue(program)
		p := runtest.Start(t, program, append(flags, "--tls-cert="+cert, "--tls-key="+key)...)
		w := p.Where()
		before := serial(t, w["listen"])
		info, err := os.Stat(cert)
		if err != nil {
			t.Fatal(err)
		}
		ours.Issue(program) // in the same files
		if err := os.Chtimes(cert, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		p.Signal(syscall.SIGHUP)
		until(t, program+" shows the new certificate", func() bool { return serial(t, w["listen"]) != before })
		renewed := serial(t, w["listen"])
		until(t, program+" logs what it has read", func() bool { return strings.Contains(p.Text(), `"serial":"`+renewed+`"`) })

		if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Signal(syscall.SIGHUP)
		until(t, program+" refuses a bad one", func() bool { return strings.Contains(p.Text(), "the certificate in use stays") })
		if now := serial(t, w["listen"]); now != renewed {
			t.Errorf("%s shows %s, want what was good: %s", program, now, renewed)
		}
		p.Stop(syscall.SIGTERM)
	}
}

// serial is that of the certificate that a server shows.
func serial(t *testing.T, addr string) string {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: limit}, "tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestPortWhileStarting: a process that waits for its store has its port, and closes
// connections to it at once.
func TestPortWhileStarting(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	free, err := porttest.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	p := runtest.Start(t, "assigner", "--store=etcd://"+silent.Addr().String(), "--listen="+free[0], "--http=")
	until(t, "connections are closed", func() bool {
		conn, err := net.DialTimeout("tcp", free[0], limit)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err = conn.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	})
	p.Stop(syscall.SIGTERM)
}

// TestStopWhileStarting: SIGTERM ends a process that waits for its store, however that
// does not answer, and so does a SIGTERM after a SIGHUP.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, program := range []string{"assigner", "backupdist"} {
		for name, stores := range map[string][]string{
			"silent":     {"--store=etcd://" + silent.Addr().String()},
			"refused":    {"--store=etcd://127.0.0.1:1"},
			"unroutable": {"--store=etcd://192.0.2.1:2379"},
			"several":    {"--store=a=etcd://" + silent.Addr().String(), "--store=b=etcd://127.0.0.1:1"},
		} {
			p := runtest.Start(t, program, append(stores, "--listen=127.0.0.1:0", "--http=")...)
			until(t, "it starts", func() bool { return strings.Contains(p.Text(), `"msg":"starting"`) })
			p.Signal(syscall.SIGHUP)
			until(t, "it has heard SIGHUP", func() bool { return strings.Contains(p.Text(), "SIGHUP") })
			t.Log(program, name)
			p.Stop(syscall.SIGTERM)
		}
	}
}
