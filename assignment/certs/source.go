package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
)

// Config names the files.
type Config struct {
	// Cert is a PEM file with the certificate that this process shows as a client and as a
	// server, and those between it and the authority, and Key one with its key. Both or
	// neither.
	Cert, Key string
	// CA is a PEM file with the authorities that must have signed the other side's
	// certificate; empty for those of the system, of servers alone.
	CA string
	// Logger says what was read again, what is no good, and who was refused; nil is
	// slog.Default().
	Logger *slog.Logger
	// For is what the files are for, in logs and the label of the metrics, such as
	// "store main"; empty for a process's only ones.
	For string
	// Registerer takes the metrics, slicer_tls_*; nil is none. It may have those of other
	// sources, that are for something else.
	Registerer prometheus.Registerer
}

// Source is what the files hold. All methods are safe for concurrent use.
type Source struct {
	log     *slog.Logger
	refused *refusals

	mu    sync.Mutex
	slots []*slot
	now   *material
}

// material is what is in use, and does not change.
type material struct {
	pair *tls.Certificate // nil if there is none
	pool *x509.CertPool   // nil for the system's
}

// slot is files that are used together or not at all. The Source's lock is held.
type slot struct {
	of    string // Certificate or Authorities
	name  string // the same, and what it is for
	paths []string
	// use puts what was read in use, and returns when it expires and what to log of it.
	use func(m *material, contents [][]byte) (expires time.Time, words []any, err error)

	seen    stamp // when last read, nil if that is to be tried again in any case
	tried   [sha256.Size]byte
	verdict error // on what was last tried: nil if it is in use

	bad             string    // why the files are not in use as they are, empty if they are
	expires, loaded time.Time // of what is in use
	failures        int
}

// New reads the files. The error names a field of Config, or is a *FileError.
func New(cfg Config) (*Source, error) {
	switch {
	case cfg.Cert == "" && cfg.Key == "" && cfg.CA == "":
		return nil, &assignment.FieldError{Field: "files", Value: "none", Allowed: "a certificate and its key, authorities, or both"}
	case cfg.Cert != "" && cfg.Key == "":
		return nil, &assignment.FieldError{Field: "key", Value: "none", Allowed: "a file, since there is a certificate"}
	case cfg.Key != "" && cfg.Cert == "":
		return nil, &assignment.FieldError{Field: "certificate", Value: "none", Allowed: "a file, since there is a key"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Source{log: cfg.Logger, refused: newRefusals(cfg.Logger), now: &material{}}
	suffix := ""
	if cfg.For != "" {
		suffix = " for " + cfg.For
	}
	if cfg.Cert != "" {
		s.slots = append(s.slots, &slot{of: Certificate, name: Certificate + suffix, paths: []string{cfg.Cert, cfg.Key}, use: usePair})
	}
	if cfg.CA != "" {
		s.slots = append(s.slots, &slot{of: Authorities, name: Authorities + suffix, paths: []string{cfg.CA}, use: usePool})
	}
	for _, f := range s.slots {
		if _, err := s.readLocked(f); err != nil {
			return nil, &FileError{f.of, err}
		}
	}
	if cfg.Registerer != nil {
		if err := register(cfg.Registerer, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// InUse is what is in use of one kind of files.
type InUse struct {
	Of   string // Certificate or Authorities
	File string
	// Leaf is the certificate that is shown to others, nil for Authorities.
	Leaf *x509.Certificate
	// Expires is when the first of the file's certificates does.
	Expires time.Time
}

// InUse returns what is in use: the certificate, if there is one, then the authorities.
func (s *Source) InUse() (all []InUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.slots {
		x := InUse{Of: f.of, File: f.paths[0], Expires: f.expires}
		if f.of == Certificate {
			x.Leaf = s.now.pair.Leaf
		}
		all = append(all, x)
	}
	return all
}

func usePair(m *material, contents [][]byte) (time.Time, []any, error) {
	pair, expires, err := parsePair(contents[0], contents[1])
	if err != nil {
		return expires, nil, err
	}
	m.pair = pair
	return expires, []any{"subject", assignment.Clip(pair.Leaf.Subject.String(), 200), "serial", pair.Leaf.SerialNumber.String()}, nil
}

func usePool(m *material, contents [][]byte) (time.Time, []any, error) {
	pool, count, expires, err := parsePool(contents[0])
	if err != nil {
		return expires, nil, err
	}
	m.pool = pool
	return expires, []any{"count", count}, nil
}

// Reload reads all files, whatever their times, and logs what it has read. What is no good
// leaves in use what was read before, and is in the error.
func (s *Source) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookLocked(true)
}

// material returns what is in use, once it has looked at the files.
func (s *Source) material() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.lookLocked(false)
	return s.now
}

// lookLocked reads the files that have changed, or must, and logs what has come of it.
func (s *Source) lookLocked(must bool) error {
	var failed []error
	for _, f := range s.slots {
		if now, err := stampOf(f.paths); !must && err == nil && now.same(f.seen) {
			continue
		}
		tried, before := f.tried, f.bad
		words, err := s.readLocked(f)
		if err == nil {
			if f.bad = ""; must || f.tried != tried || before != "" {
				s.log.Info(f.name+" read again", append(words, "file", f.paths[0], "expires", f.expires)...)
			}
			continue
		}
		failed = append(failed, &FileError{f.of, err})
		f.bad = err.Error()
		changed := f.tried != tried || f.bad != before
		if changed {
			f.failures++
		}
		if changed || must {
			s.log.Error("the "+f.name+" in use stays", "error", err, "expires", f.expires)
		}
	}
	return errors.Join(failed...)
}

// readLocked reads the files of a slot and puts what is good in use. It returns what to log
// of that.
func (s *Source) readLocked(f *slot) (words []any, err error) {
	f.seen = nil
	seen, err := stampOf(f.paths)
	if err != nil {
		return nil, err
	}
	contents, sum, err := readAll(f.paths)
	if err != nil {
		return nil, err
	}
	if seen.settledAt(time.Now()) {
		f.seen = seen
	}
	if sum == f.tried && f.verdict != nil {
		return nil, f.verdict
	}
	next := *s.now
	expires, words, err := f.use(&next, contents)
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(f.paths, ", "), err)
	}
	known := sum == f.tried
	f.tried, f.verdict = sum, err
	if err == nil && !known {
		s.now, f.expires, f.loaded = &next, expires, time.Now()
	}
	return words, err
}
