package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// maxSize bounds a file, in bytes; the largest known lists of authorities have a
	// quarter of it.
	maxSize = 1 << 20
	// settled is for how long a file has to have been left alone until what its times say is
	// believed: it may be written twice within what its file system can tell apart.
	settled = 2 * time.Second
)

// FileError is of files that cannot be used.
type FileError struct {
	// Of is what is in them: Certificate, and its key, or Authorities.
	Of  string
	Err error
}

// Error names the kind and the cause.
func (e *FileError) Error() string { return e.Of + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// stamp tells contents of files apart without reading them.
type stamp []os.FileInfo

func stampOf(paths []string) (stamp, error) {
	var s stamp
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		s = append(s, info)
	}
	return s, nil
}

// same reports whether neither the files nor what is in them can have changed.
func (s stamp) same(o stamp) bool {
	if len(s) != len(o) {
		return false
	}
	for i, a := range s {
		if b := o[i]; !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// settledAt reports whether the files were left alone for a while before now.
func (s stamp) settledAt(now time.Time) bool {
	for _, info := range s {
		if age := now.Sub(info.ModTime()); age >= 0 && age < settled {
			return false
		}
	}
	return true
}

// readAll returns the contents of files, and a sum by which to tell them apart.
func readAll(paths []string) (contents [][]byte, sum [sha256.Size]byte, err error) {
	all := sha256.New()
	for _, p := range paths {
		data, err := readFile(p)
		if err != nil {
			return nil, sum, err
		}
		fmt.Fprintf(all, "%d ", len(data))
		all.Write(data)
		contents = append(contents, data)
	}
	return contents, [sha256.Size]byte(all.Sum(nil)), nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSize)
	}
	return data, err
}

// parsePair returns a certificate with its key, and when the first of its chain expires.
func parsePair(cert, key []byte) (*tls.Certificate, time.Time, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, time.Time{}, err
	}
	expires := pair.Leaf.NotAfter
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, time.Time{}, err
		}
		expires = earlier(expires, c.NotAfter)
	}
	return &pair, expires, nil
}

// parsePool returns authorities, how many they are, and when the first of them expires. A
// file that was written in part is refused, as far as that shows.
func parsePool(data []byte) (pool *x509.CertPool, count int, expires time.Time, err error) {
	pool = x509.NewCertPool()
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, 0, time.Time{}, fmt.Errorf("certificate %d: %w", count+1, err)
		}
		pool.AddCert(c)
		if count++; count == 1 {
			expires = c.NotAfter
		}
		expires = earlier(expires, c.NotAfter)
	}
	switch {
	case bytes.Contains(data, []byte("-----BEGIN")):
		return nil, 0, time.Time{}, errors.New("what follows the last certificate is cut off or malformed")
	case count == 0:
		return nil, 0, time.Time{}, errors.New("there is no PEM certificate")
	}
	return pool, count, expires, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
