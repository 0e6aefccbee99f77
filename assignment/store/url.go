package store

import (
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Schemes of store URLs.
const (
	SchemeEtcd   = "etcd"
	SchemePebble = "pebble"
)

// DefaultPrefix is where in etcd the store lies when its URL names no path.
const DefaultPrefix = "/slicer"

// MaxPrefixLen bounds an etcd prefix, bytes.
const MaxPrefixLen = 255

// URL says where a store is.
type URL struct {
	Scheme string
	// Endpoints are host:port, at least one, and Prefix begins with a slash and
	// does not end with one. SchemeEtcd only.
	Endpoints []string
	Prefix    string
	// Dir is an absolute, clean path. SchemePebble only.
	Dir string
}

// ParseURL reads etcd://h1:2379,h2:2379/prefix or pebble:///dir. Its errors are
// *assignment.FieldError. It opens nothing.
func ParseURL(s string) (URL, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != SchemeEtcd && scheme != SchemePebble {
		return URL{}, &assignment.FieldError{Field: "store", Value: s, Allowed: "etcd://HOST:PORT[,HOST:PORT...][/PREFIX] or pebble:///DIR"}
	}
	host, tail := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host, tail = rest[:i], rest[i:]
	}
	if scheme == SchemePebble {
		if host != "" || path.Clean(tail) == "/" || tail == "" || strings.ContainsRune(tail, 0) {
			return URL{}, &assignment.FieldError{Field: "store", Value: s, Allowed: "pebble:///DIR with an absolute directory other than the root, hence three slashes"}
		}
		return URL{Scheme: scheme, Dir: path.Clean(tail)}, nil
	}
	u := URL{Scheme: scheme, Endpoints: strings.Split(host, ","), Prefix: strings.TrimSuffix(tail, "/")}
	if u.Prefix == "" {
		u.Prefix = DefaultPrefix
	}
	for _, e := range u.Endpoints {
		if err := ValidateEndpoint(e); err != nil {
			return URL{}, err
		}
	}
	return u, ValidatePrefix(u.Prefix)
}

// String is what ParseURL reads.
func (u URL) String() string {
	if u.Scheme == SchemePebble {
		return u.Scheme + "://" + u.Dir
	}
	return u.Scheme + "://" + strings.Join(u.Endpoints, ",") + u.Prefix
}

// ValidateEndpoint reports whether e is host:port.
func ValidateEndpoint(e string) error {
	host, port, err := net.SplitHostPort(e)
	if err == nil && host != "" && !strings.ContainsAny(host, "/@?# ") {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			return nil
		}
	}
	return &assignment.FieldError{Field: "store endpoint", Value: e, Allowed: "HOST:PORT with a port of 1 to 65535"}
}

// ValidatePrefix reports whether p can be a prefix in etcd. Stores in one etcd have
// prefixes of which none is the beginning of another's path.
func ValidatePrefix(p string) error {
	ok := len(p) <= MaxPrefixLen && strings.HasPrefix(p, "/")
	for _, segment := range strings.Split(strings.TrimPrefix(p, "/"), "/") {
		ok = ok && segment != "" && segment != "." && segment != ".." &&
			strings.IndexFunc(segment, func(r rune) bool {
				return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
			}) < 0
	}
	if !ok {
		return &assignment.FieldError{Field: "store prefix", Value: p, Allowed: fmt.Sprintf("/ and names of a-z, A-Z, 0-9, -, _ and . with a slash between them, at most %d bytes", MaxPrefixLen)}
	}
	return nil
}

// Validate names the first field that is not allowed.
func (c Candidate) Validate() error {
	for _, f := range []struct {
		field, value string
		least, most  int
	}{
		{"candidate id", c.ID, 1, assignment.MaxNameLen},
		{"candidate address", c.Address, 1, assignment.MaxAddressLen},
		{"candidate zone", c.Zone, 0, assignment.MaxZoneLen},
	} {
		if !(f.least == 0 && f.value == "") && !assignment.ValidToken(f.value, f.most) {
			return &assignment.FieldError{Field: f.field, Value: f.value, Allowed: fmt.Sprintf("%d to %d printable ASCII characters without space or slash", f.least, f.most)}
		}
	}
	return nil
}
