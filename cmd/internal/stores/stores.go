// Package stores opens the etcd stores that --store flags name.
package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

const (
	// patience is how long a process waits at its start for a store that does not answer.
	// Then it gives up, so that its operator notices.
	patience = time.Minute
	// tryFor is how long one attempt may take, pause how long it rests
	// between two.
	tryFor = 5 * time.Second
	pause  = 2 * time.Second
)

// Spec is a --store flag: [NAME=]URL[?ca=FILE&cert=FILE&key=FILE].
type Spec struct {
	// Name is empty when the flag gives none.
	Name string
	// RegistrationTTL is etcdstore.Config's; 0 takes the default.
	RegistrationTTL time.Duration
	// Compress is etcdstore.Config's.
	Compress bool
	url      store.URL
	files    *certs.Config // nil for plain text
	tls      credentials.TransportCredentials
}

func (s Spec) config(log *slog.Logger) etcdstore.Config {
	return etcdstore.Config{Endpoints: s.url.Endpoints, Prefix: s.url.Prefix, TLS: s.tls, RegistrationTTL: s.RegistrationTTL, Compress: s.Compress, Logger: log}
}

func (s Spec) String() string { return s.url.String() }

// Usage is what a --store flag looks like.
const Usage = "etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?ca=FILE&cert=FILE&key=FILE]"

// CompressUsage is what a --compress-store flag does.
const CompressUsage = "keep whole assignments compressed in the store: a quarter of the bytes or less. Versions without this flag cannot read them"

// Parse reads a --store flag of a process that shares its store with others.
func Parse(flag string) (Spec, error) {
	var s Spec
	// A name is before the scheme; a URL may have "=" only after its "?".
	if name, rest, ok := strings.Cut(flag, "="); ok && !strings.Contains(name, "://") {
		if s.Name, flag = name, rest; name == "" || len(name) > 63 || strings.ContainsAny(name, "/: ") {
			return s, run.Usagef("--store: the name %q is not allowed: want 1 to 63 characters without space, slash and colon", name)
		}
	}
	var err error
	if s.url, s.files, err = parseURL(flag); err != nil {
		return s, err
	}
	if s.url.Scheme == store.SchemePebble {
		return s, run.Usagef("--store: %s is for one process alone, which locks the directory: want %s here, or run \"slicer serve\", which is the whole control plane in one process", s.url, Usage)
	}
	return s, nil
}

// ParseURL reads a --store flag without a name, of a store of any kind, for a program that
// does not run for long. The credentials are nil for plain text.
func ParseURL(flag string) (store.URL, credentials.TransportCredentials, error) {
	u, files, err := parseURL(flag)
	if err != nil || files == nil {
		return u, nil, err
	}
	source, err := certs.New(*files)
	if err != nil {
		return u, nil, fmt.Errorf("--store: %w", err)
	}
	return u, source.Client(), nil
}

func parseURL(flag string) (store.URL, *certs.Config, error) {
	address, params, _ := strings.Cut(flag, "?")
	u, err := store.ParseURL(address)
	if err != nil {
		return u, nil, run.Usagef("--store: %w", err)
	}
	if u.Scheme == store.SchemePebble {
		if params != "" {
			return u, nil, run.Usagef("--store: %q is not allowed after the ? of %s: files of TLS are for etcd", params, u)
		}
		return u, nil, nil
	}
	files, err := tlsFiles(params)
	return u, files, err
}

// ParseAll reads the --store flags of a process that may serve several stores.
func ParseAll(urls []string) ([]Spec, error) {
	if len(urls) == 0 {
		return nil, run.Usagef("--store is missing: want %s", Usage)
	}
	seen := map[string]bool{}
	var specs []Spec
	for _, u := range urls {
		s, err := Parse(u)
		if err != nil {
			return nil, err
		}
		if seen[s.Name] || s.Name == "" && len(urls) > 1 {
			return nil, run.Usagef("--store: the name %q of %s is not allowed: want a name of its own for each of several stores, as in --store main=URL --store eu=URL", s.Name, s)
		}
		seen[s.Name] = true
		specs = append(specs, s)
	}
	return specs, nil
}

// tlsFiles are those after the ? of a URL, nil if there are none. They can be read.
func tlsFiles(params string) (*certs.Config, error) {
	if params == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(params)
	if err != nil {
		return nil, run.Usagef("--store: after the ?: %w", err)
	}
	for k, v := range values {
		if k != "ca" && k != "cert" && k != "key" || len(v) != 1 || v[0] == "" {
			return nil, run.Usagef("--store: %q is not allowed after the ?: want ca, cert and key, once each, with a file", k)
		}
	}
	files := &certs.Config{Cert: values.Get("cert"), Key: values.Get("key"), CA: values.Get("ca"), Logger: slog.New(slog.DiscardHandler)}
	if (files.Cert == "") != (files.Key == "") {
		return nil, run.Usagef("--store: cert and key go together after the ?")
	}
	_, err = certs.New(*files)
	var file *certs.FileError
	switch {
	case errors.As(err, &file) && file.Of == certs.Authorities:
		return nil, fmt.Errorf("--store: ca: %w", file.Err)
	case errors.As(err, &file):
		return nil, fmt.Errorf("--store: cert, key: %w", file.Err)
	}
	return files, err
}

// secure reads the TLS files of a store, if its URL names any, and again when they change.
func (s *Spec) secure(p *run.Process) error {
	if s.files == nil {
		return nil
	}
	files := *s.files
	if files.For = "the store"; s.Name != "" {
		files.For = "store " + s.Name
	}
	source, err := p.OpensTLS(files)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	s.tls = source.Client()
	return nil
}

// Open opens a store and waits for one that does not answer yet.
func Open(ctx context.Context, s Spec, log *slog.Logger, status *run.Status) (*etcdstore.Store, error) {
	return await(ctx, s.String(), log, status, func(ctx context.Context) (*etcdstore.Store, error) {
		return etcdstore.Open(ctx, s.config(log))
	})
}

// await tries until the store answers, for a while, since store and process may
// be starting together. Meanwhile the process is not ready. Whatever is not mere
// silence ends it at once.
func await[S any](ctx context.Context, name string, log *slog.Logger, status *run.Status, open func(context.Context) (S, error)) (S, error) {
	var none S
	begun := time.Now()
	status.NotReady("opening store " + name)
	for {
		try, cancel := context.WithTimeout(ctx, tryFor)
		b, err := open(try)
		cancel()
		switch {
		case err == nil:
			return b, nil
		case ctx.Err() != nil:
			return none, ctx.Err()
		case !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return none, fmt.Errorf("--store: %w", err)
		case time.Since(begun) >= patience:
			return none, fmt.Errorf("--store: no answer within %s: %w", patience, err)
		}
		log.Warn("the store does not answer, trying again", "store", name, "error", err)
		status.NotReady(fmt.Sprintf("store %s does not answer: %v", name, err))
		backoff.Sleep(ctx, pause)
	}
}
