package etcdstore

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Config says where the store is and how it behaves. Endpoints are required;
// other zero values stand for the defaults.
type Config struct {
	// Endpoints are host:port of one or more members.
	Endpoints []string
	// Prefix of all keys, as store.ValidatePrefix allows. Default store.DefaultPrefix.
	Prefix string
	// TLS secures the connections; nil is plain text.
	TLS credentials.TransportCredentials
	// Keep is how many generations of a job stay readable, 2 to 1024, default 64.
	Keep int
	// Compress has whole assignments written compressed, which takes a quarter of the bytes or
	// less. Every process on the store must be of a version that reads them.
	Compress bool
	// RequestTimeout bounds a call whose ctx has no deadline: 100 ms to 10 min, default 5 s.
	RequestTimeout time.Duration
	// RegistrationTTL is how long an assigner that died stays registered: 2 s to
	// 10 min in whole seconds, default 3 s. etcd makes it longer than its election timeout.
	RegistrationTTL time.Duration
	// Logger may be nil.
	Logger *slog.Logger

	// For tests: what is put between store and etcd, and how often followers check.
	dialOptions   []grpc.DialOption
	checkInterval time.Duration
}

// CheckRegistrationTTL reports whether a RegistrationTTL is allowed.
func CheckRegistrationTTL(d time.Duration) error {
	if d < 2*time.Second || d > 10*time.Minute || d%time.Second != 0 {
		return &assignment.FieldError{Field: "registration TTL", Value: d, Allowed: "2s to 10m in whole seconds"}
	}
	return nil
}

// check fills in the defaults and names the first field that is not allowed.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = store.DefaultPrefix
	}
	if c.Keep == 0 {
		c.Keep = 64
	}
	if c.checkInterval == 0 {
		c.checkInterval = checkInterval
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 5 * time.Second
	}
	if c.RegistrationTTL == 0 {
		c.RegistrationTTL = 3 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(c.Endpoints) == 0 {
		return &assignment.FieldError{Field: "store endpoints", Value: "", Allowed: "one HOST:PORT or more"}
	}
	for _, e := range c.Endpoints {
		if err := store.ValidateEndpoint(e); err != nil {
			return err
		}
	}
	switch {
	case c.Keep < 2 || c.Keep > record.MaxKeep:
		return &assignment.FieldError{Field: "kept generations", Value: c.Keep, Allowed: fmt.Sprintf("2 to %d", record.MaxKeep)}
	case c.RequestTimeout < 100*time.Millisecond || c.RequestTimeout > 10*time.Minute:
		return &assignment.FieldError{Field: "request timeout", Value: c.RequestTimeout, Allowed: "100ms to 10m"}
	}
	if err := CheckRegistrationTTL(c.RegistrationTTL); err != nil {
		return err
	}
	return store.ValidatePrefix(c.Prefix)
}

// where names the store in errors.
func (c *Config) where() string {
	return store.SchemeEtcd + "://" + strings.Join(c.Endpoints, ",") + c.Prefix
}
