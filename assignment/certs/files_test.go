package certs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/certs/certstest"
)

func TestConfigRefused(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	_, stranger := ours.Issue("stranger")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	write(t, junk, []byte("junk"))
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, `files: "none" is not allowed`},
		{Config{Cert: cert}, `key: "none" is not allowed`},
		{Config{Key: key}, `certificate: "none" is not allowed`},
		{Config{Cert: junk, Key: key}, "certificate: " + junk + ", " + key + ": tls: failed to find any PEM data"},
		{Config{Cert: cert, Key: stranger}, "certificate: " + cert + ", " + stranger + ": tls: private key does not match"},
		{Config{Cert: cert, Key: key, CA: junk}, "authorities: " + junk + ": there is no PEM certificate"},
		{Config{CA: "/nowhere"}, "authorities: stat /nowhere: no such file"},
	} {
		_, err := New(c.cfg)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.cfg, err, c.want)
		}
		var field *assignment.FieldError
		var file *FileError
		if !errors.As(err, &field) && !errors.As(err, &file) {
			t.Errorf("%+v: %T", c.cfg, err)
		}
	}
}

// TestBadFiles: files that are no good leave in use what was, are logged once for each
// change, are counted and shown in a metric, and what is good again is used.
func TestBadFiles(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	n := newNode(t, cert, key, ours.CA)
	good := map[string][]byte{cert: read(t, cert), key: read(t, key), ours.CA: read(t, ours.CA)}
	pair, pool := n.material().pair, n.material().pool
	failures := map[string]float64{}
	for _, c := range []struct {
		of, file, what string
		data           []byte // nil takes the file away
		want           string
	}{
		{Certificate, cert, "junk", []byte("junk"), "failed to find any PEM data"},
		{Certificate, cert, "nothing", []byte{}, "failed to find any PEM data"},
		{Certificate, cert, "half", good[cert][:len(good[cert])/2], "failed to find any PEM data"},
		{Certificate, cert, "no file", nil, "no such file"},
		{Certificate, key, "junk", []byte("junk"), "failed to find any PEM data"},
		{Certificate, key, "too much", bytes.Repeat([]byte{'x'}, maxSize+1), "has more than 1048576 bytes"},
		{Authorities, ours.CA, "junk", []byte("junk"), "there is no PEM certificate"},
		{Authorities, ours.CA, "no file", nil, "no such file"},
		{Authorities, ours.CA, "one and a half", append(bytes.Clone(good[ours.CA]), good[ours.CA][:len(good[ours.CA])/2]...), "cut off"},
		{Authorities, ours.CA, "a malformed one", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "certificate 1: "},
	} {
		name := c.of + ": " + filepath.Base(c.file) + ": " + c.what
		before := len(n.log.lines("level=ERROR"))
		if c.data == nil {
			if err := os.Remove(c.file); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, c.file, c.data)
		}
		for range 3 {
			if m := n.material(); m.pair != pair || m.pool != pool {
				t.Fatalf("%s: something else is in use", name)
			}
		}
		failures[c.of]++
		if got := n.value(t, "slicer_tls_reload_failures_total", c.of); got != failures[c.of] {
			t.Errorf("%s: %v failures, want %v", name, got, failures[c.of])
		}
		if got := n.value(t, "slicer_tls_stale", c.of); got != 1 {
			t.Errorf("%s: stale is %v", name, got)
		}
		lines := n.log.lines("level=ERROR")
		if len(lines) != before+1 || !strings.Contains(lines[before], c.want) || !strings.Contains(lines[before], "the "+c.of+" in use stays") {
			t.Errorf("%s: logged %q, want one with %q", name, lines[before:], c.want)
		}
		if err := n.Reload(); err == nil || !strings.Contains(err.Error(), c.want) || len(n.log.lines("level=ERROR")) != before+2 {
			t.Errorf("%s: Reload: %v, %d lines", name, err, len(n.log.lines("level=ERROR"))-before)
		}
		write(t, c.file, good[c.file])
		if err := n.Reload(); err != nil {
			t.Errorf("%s, and good again: %v", name, err)
		}
		pair, pool = n.material().pair, n.material().pool
		if got := n.value(t, "slicer_tls_stale", c.of); got != 0 {
			t.Errorf("%s, and good again: stale is %v", name, got)
		}
	}
}

// TestReplaced: a change shows, whatever the times and sizes of files are, and where only
// the key changes.
func TestReplaced(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours")
	cert, key := ours.Issue("server")
	long := time.Now().Add(-time.Hour)
	old := func(files ...string) {
		for _, f := range files {
			if err := os.Chtimes(f, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	old(cert, key)
	n := newNode(t, cert, key, "")
	serial := func() string { return n.material().pair.Leaf.SerialNumber.String() }
	first := serial()
	if m := n.material(); m != n.material() {
		t.Error("files that stay the same are read again")
	}
	ncert, nkey := ours.Issue("next")
	replace(t, cert, read(t, ncert))
	old(cert)
	if serial() != first {
		t.Error("a certificate is used without its key")
	}
	if got := n.value(t, "slicer_tls_stale", Certificate); got != 1 {
		t.Errorf("stale is %v", got)
	}
	replace(t, key, read(t, nkey)) // and the certificate stays
	old(key)
	second := serial()
	if second == first {
		t.Error("the key has changed, and the pair is not used")
	}
	// In place, of the same size and a moment after it was read.
	other := bytes.Clone(read(t, cert))
	write(t, cert, other)
	n.material()
	other[len(other)/2] ^= 1
	info, err := os.Stat(cert)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, other)
	if err := os.Chtimes(cert, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got := n.value(t, "slicer_tls_stale", Certificate); got != 1 {
		t.Error("a change within what the file's time can tell is not seen")
	}
	if serial() != second {
		t.Error("what was good is not in use any more")
	}
}

func TestExpiry(t *testing.T) {
	ours := certstest.NewAuthority(t, "ours", certstest.Expires(72*time.Hour))
	sooner := certstest.NewAuthority(t, "sooner", certstest.Expires(48*time.Hour))
	cert, key := ours.Issue("server", certstest.Expires(24*time.Hour))
	before := time.Now()
	write(t, ours.CA, append(read(t, ours.CA), read(t, sooner.CA)...))
	n := newNode(t, cert, key, ours.CA)
	for of, ends := range map[string]time.Time{Certificate: n.material().pair.Leaf.NotAfter, Authorities: sooner.Certificate().NotAfter} {
		most := ends.Sub(before).Seconds()
		got := n.value(t, "slicer_tls_expiry_seconds", of)
		if least := time.Until(ends).Seconds(); got > most || got < least {
			t.Errorf("%s expires in %v s, want %v to %v", of, got, least, most)
		}
		if got := n.value(t, "slicer_tls_loaded_timestamp_seconds", of); got < float64(before.UnixMilli())/1000 {
			t.Errorf("%s was loaded at %v", of, got)
		}
	}
	write(t, cert, append(read(t, cert), read(t, sooner.CA)...)) // an intermediate that ends later
	if got := n.value(t, "slicer_tls_expiry_seconds", Certificate); got > 24*3600 {
		t.Errorf("with a chain: %v s", got)
	}
	gone, gkey := ours.Issue("gone", certstest.Expires(-time.Minute))
	if got := newNode(t, gone, gkey, "").value(t, "slicer_tls_expiry_seconds", Certificate); got >= 0 {
		t.Errorf("one that has expired: %v s", got)
	}
}

func FuzzParse(f *testing.F) {
	ours := certstest.NewAuthority(f, "ours")
	data, err := os.ReadFile(ours.CA)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(append(data, data[:20]...))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if pool, count, _, err := parsePool(data); (err == nil) != (pool != nil && count > 0) {
			t.Errorf("%v, %d, %v", pool, count, err)
		}
		if pair, _, err := parsePair(data, data); (err == nil) != (pair != nil) {
			t.Errorf("%v, %v", pair, err)
		}
	})
}

// BenchmarkLook is what a handshake pays for files that may have changed.
func BenchmarkLook(b *testing.B) {
	ours := certstest.NewAuthority(b, "ours")
	cert, key := ours.Issue("server")
	long := time.Now().Add(-time.Hour)
	for _, f := range []string{cert, key, ours.CA} {
		if err := os.Chtimes(f, long, long); err != nil {
			b.Fatal(err)
		}
	}
	s, err := New(Config{Cert: cert, Key: key, CA: ours.CA})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s.material()
	}
}

// Sources of one process are told apart in its metrics and its log by what they are for.
func TestSeveralSources(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	cert, key := ours.Issue("server")
	n := newNode(t, cert, key, ours.CA)
	storeCert, storeKey := theirs.Issue("client", certstest.Expires(30*time.Minute))
	cfg := Config{Cert: storeCert, Key: storeKey, CA: theirs.CA, For: "store main", Logger: n.log.logger(), Registerer: n.reg}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	own, other := n.value(t, "slicer_tls_expiry_seconds", Certificate), n.value(t, "slicer_tls_expiry_seconds", "certificate for store main")
	if own <= other || other <= 0 || other > 1800 {
		t.Errorf("they expire in %v s and %v s", own, other)
	}
	write(t, storeKey, []byte("junk"))
	if s.Reload() == nil {
		t.Error("junk is read")
	}
	if n.value(t, "slicer_tls_stale", "certificate for store main") != 1 || n.value(t, "slicer_tls_stale", Certificate) != 0 || n.value(t, "slicer_tls_stale", "authorities for store main") != 0 {
		t.Error("it does not show which files are no good")
	}
	if lines := n.log.lines("the certificate for store main in use stays"); len(lines) != 1 {
		t.Error(lines)
	}
	storeCert, storeKey = theirs.Issue("client")
	cfg.Cert, cfg.Key = storeCert, storeKey
	var field *assignment.FieldError
	if _, err := New(cfg); !errors.As(err, &field) || field.Field != "for" {
		t.Errorf("two sources for one thing: %v", err)
	}
	all := s.InUse()
	if len(all) != 2 || all[0].Of != Certificate || all[0].File != storeCert || all[0].Leaf == nil || all[1].File != theirs.CA || all[1].Leaf != nil || all[1].Expires.IsZero() {
		t.Errorf("in use: %+v", all)
	}
}
