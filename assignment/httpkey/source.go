package httpkey

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Limits.
const (
	// MaxLen bounds a key, bytes.
	MaxLen = assignment.MaxKeyLen
	// MaxSources bounds the sources of one Finder.
	MaxSources = 16
	// MaxName bounds the name of a header, cookie or query parameter, bytes.
	MaxName = 256
	// MaxSegment is the last path segment that may be asked for by number.
	MaxSegment = 64
	// MaxProxies bounds the trusted proxies of ClientAddress.
	MaxProxies = 16
)

// Source is a place in a request where the key may be. The zero Source is none.
type Source struct {
	text string
	find func(r *http.Request) (string, flaw)
	err  error // why it is not allowed
}

// flaw is why a source gives no key.
type flaw uint8

const (
	fine flaw = iota
	absent
	empty
	tooLong
	malformed
)

var flaws = [...]string{fine: "there", absent: "absent", empty: "empty", tooLong: fmt.Sprintf("longer than %d bytes", MaxLen), malformed: "malformed"}

// String says where the source looks, such as "header X-User".
func (s Source) String() string { return s.text }

// Header is a request header's first value. The name is not case-sensitive;
// Host is the host that the request is for.
func Header(name string) Source {
	name = http.CanonicalHeaderKey(name)
	s := Source{text: "header " + name, err: checkToken("header", name)}
	switch {
	case s.err != nil:
	case strings.HasPrefix(name, Prefix):
		s.err = &assignment.FieldError{Field: "header", Value: name, Allowed: "a header of the application's: those that begin with " + Prefix + " are Slicer's own"}
	case name == "Host":
		s.find = func(r *http.Request) (string, flaw) { return r.Host, absent }
	default:
		s.find = func(r *http.Request) (string, flaw) {
			if vs := r.Header[name]; len(vs) > 0 {
				return vs[0], empty
			}
			return "", absent
		}
	}
	return s
}

// Cookie is the value of the first cookie of this name, as net/http reads it.
func Cookie(name string) Source {
	s := Source{text: "cookie " + name, err: checkToken("cookie", name)}
	s.find = func(r *http.Request) (string, flaw) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", absent
		}
		return c.Value, empty
	}
	return s
}

// Query is the first value of a query parameter, unescaped. As in net/url,
// parameters that are not well-formed count as not there.
func Query(name string) Source {
	s := Source{text: "query parameter " + name}
	if name == "" || len(name) > MaxName {
		s.err = &assignment.FieldError{Field: "query", Value: name, Allowed: fmt.Sprintf("a parameter's name of 1 to %d bytes", MaxName)}
	}
	s.find = func(r *http.Request) (string, flaw) { return query(r.URL.RawQuery, name) }
	return s
}

// query finds what url.ParseQuery has as the first value.
func query(raw, name string) (string, flaw) {
	why := absent
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		k, v, _ := strings.Cut(pair, "=")
		k, err := url.QueryUnescape(k)
		if err != nil || k != name {
			continue
		}
		if strings.Contains(pair, ";") {
			why = malformed
			continue
		}
		if v, err = url.QueryUnescape(v); err != nil {
			why = malformed
			continue
		}
		return v, empty
	}
	return "", why
}

// Segment is the n-th segment of the path, unescaped; the first is 1: of
// /users/4711/mail the second is 4711.
func Segment(n int) Source {
	s := Source{text: fmt.Sprint("path segment ", n)}
	if n < 1 || n > MaxSegment {
		s.err = &assignment.FieldError{Field: "segment", Value: n, Allowed: fmt.Sprintf("1 to %d", MaxSegment)}
	}
	s.find = func(r *http.Request) (string, flaw) {
		w := walk(r.URL)
		for i := 1; ; i++ {
			seg, ok := w.next()
			switch {
			case !ok:
				return "", absent
			case i == n:
				return seg, empty
			}
		}
	}
	return s
}

// Wildcard is what a named wildcard of a pattern stands for in the path: of
// /users/4711/mail, {id} of the pattern /users/{id}/ is 4711.
func Wildcard(p *Pattern, name string) Source {
	s := Source{text: fmt.Sprintf("wildcard {%s} of path %s", name, p)}
	i := p.wildcard(name)
	if i < 0 {
		s.err = &assignment.FieldError{Field: "wildcard", Value: name, Allowed: fmt.Sprintf("the name of a wildcard of the path, which is %s", p)}
	}
	s.find = func(r *http.Request) (string, flaw) {
		value, ok := p.match(r.URL, i)
		if !ok {
			return "", absent
		}
		return value, empty
	}
	return s
}

// ClientAddress is the IP address that the request comes from, in its canonical
// text form and without a port. With trusted proxies in front it is the one that
// the first of them has seen: that many places from the end of
// X-Forwarded-For. With none it is the connection's peer, whatever that header
// says.
func ClientAddress(trustedProxies int) Source {
	s := Source{text: "client address"}
	if trustedProxies < 0 || trustedProxies > MaxProxies {
		s.err = &assignment.FieldError{Field: "trusted_proxies", Value: trustedProxies, Allowed: fmt.Sprintf("0 to %d", MaxProxies)}
	}
	s.find = func(r *http.Request) (string, flaw) {
		text := r.RemoteAddr
		if trustedProxies > 0 {
			var ok bool
			if text, ok = forwarded(r.Header["X-Forwarded-For"], trustedProxies); !ok {
				return "", absent
			}
		}
		ip, err := netip.ParseAddr(text)
		if err != nil {
			var ap netip.AddrPort
			ap, err = netip.ParseAddrPort(text)
			ip = ap.Addr()
		}
		if err != nil {
			return "", malformed
		}
		return ip.Unmap().WithZone("").String(), empty
	}
	return s
}

// forwarded is the n-th entry from the end of a list that may be spread over
// several header lines.
func forwarded(lines []string, n int) (string, bool) {
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for more := true; more; n-- {
			var entry string
			if at := strings.LastIndexByte(rest, ','); at >= 0 {
				rest, entry = rest[:at], rest[at+1:]
			} else {
				entry, more = rest, false
			}
			if n == 1 {
				return strings.TrimSpace(entry), true
			}
		}
	}
	return "", false
}

// checkToken reports whether a name is a token (RFC 9110, section 5.6.2).
func checkToken(field, name string) error {
	bad := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(tokenMarks, r))
	}
	if name == "" || len(name) > MaxName || strings.ContainsFunc(name, bad) {
		return &assignment.FieldError{Field: field, Value: name, Allowed: fmt.Sprintf("a name of 1 to %d letters, digits and %s", MaxName, tokenMarks)}
	}
	return nil
}

const tokenMarks = "!#$%&'*+-.^_`|~"
