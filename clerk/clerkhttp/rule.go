package clerkhttp

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// Limits of Rules.
const (
	MaxRules   = 1024
	maxHostLen = 253
)

// Rules say where a proxy sends which requests: the first that fits counts. A
// request that none fits is answered by 404.
type Rules struct {
	// TrustedProxies is how many proxies stand before this one and may be believed:
	// 0, the default, to httpkey.MaxProxies. With none, what a request says in
	// X-Forwarded-For and the like is dropped; otherwise it is passed on, and
	// added to.
	TrustedProxies int
	List           []Rule
}

// Rule is for the requests that fit its host and path.
type Rule struct {
	// Host is a host's name without a port, *.example.com for all names below
	// example.com, or empty for any host.
	Host string
	// Path is what httpkey.ParsePattern reads, or empty for any path.
	Path string
	// Job is whose tasks serve these requests.
	Job string
	// Key is where the key is, in the first that has one. Without any the requests
	// have no key and go to any task.
	Key []httpkey.Source
	// Missing is for requests that should have a key and do not.
	Missing Missing
	// Upstream is how tasks are spoken to.
	Upstream Upstream
	// Criticality is that of these requests, 0 for the job's default; CriticalityFrom is
	// where a request says its own, in the first that has anything, of which only the name
	// of a criticality counts. Nothing else that comes from outside does.
	Criticality     overload.Criticality
	CriticalityFrom []httpkey.Source
	// Customer is where the name of the customer is that requests are charged to, in the
	// first that has one.
	Customer []httpkey.Source
	// Timeout is how long a request may take altogether, 1 ms to httpkey.MaxTimeout, 0 for
	// any time; then it is answered by 504. Tasks are told, so that they begin only what they
	// can answer in time. A request may say a shorter one itself, in httpkey.HeaderTimeout.
	Timeout time.Duration
}

// Upstream is a protocol that tasks speak.
type Upstream uint8

const (
	// HTTP is HTTP/1.1.
	HTTP Upstream = iota
	// HTTPS is HTTP/2 or HTTP/1.1, as the task likes, in TLS.
	HTTPS
	// H2C is HTTP/2 without TLS, which gRPC servers speak.
	H2C
)

var upstreamNames = [...]string{HTTP: "http", HTTPS: "https", H2C: "h2c"}

func (u Upstream) String() string { return upstreamNames[min(int(u), len(upstreamNames)-1)] }

// ParseUpstream reads what String prints.
func ParseUpstream(s string) (Upstream, error) {
	for u, name := range upstreamNames {
		if s == name {
			return Upstream(u), nil
		}
	}
	return 0, &assignment.FieldError{Field: "upstream", Value: s, Allowed: "http, https or h2c"}
}

func (u Upstream) scheme() string {
	if u == HTTPS {
		return "https"
	}
	return "http"
}

// Validate returns a *assignment.FieldError for the first field that is not
// allowed.
func (r Rule) Validate() error {
	_, err := compile(r)
	return err
}

// compiled is a rule that is ready to be matched.
type compiled struct {
	Rule
	host   string // in lower case, without the *
	below  bool   // the host begins with *.
	path   *httpkey.Pattern
	finder *httpkey.Finder
	// Each is nil if the rule has no such sources.
	criticality, customer *httpkey.Finder
}

func compile(r Rule) (*compiled, error) {
	c := &compiled{Rule: r}
	var err error
	c.host, c.below = strings.CutPrefix(strings.ToLower(r.Host), "*")
	name := strings.TrimPrefix(c.host, ".")
	if r.Host != "" && (!isHost(name) || c.below != strings.HasPrefix(c.host, ".")) {
		return nil, &assignment.FieldError{Field: "host", Value: r.Host, Allowed: "a host's name without a port, such as shop.example.com or *.example.com"}
	}
	if r.Path != "" {
		if c.path, err = httpkey.ParsePattern(r.Path); err != nil {
			return nil, err
		}
	}
	if err := assignment.ValidateJobName(r.Job); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		to   **httpkey.Finder
		from []httpkey.Source
	}{{&c.finder, r.Key}, {&c.criticality, r.CriticalityFrom}, {&c.customer, r.Customer}} {
		if len(f.from) > 0 {
			if *f.to, err = httpkey.New(f.from...); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case r.Missing > Refuse:
		return nil, &assignment.FieldError{Field: "missing", Value: int(r.Missing), Allowed: "any or refuse"}
	case r.Missing == Refuse && c.finder == nil:
		return nil, &assignment.FieldError{Field: "missing", Value: r.Missing.String(), Allowed: "any, as the rule has no key"}
	case r.Criticality != 0 && !r.Criticality.Valid():
		return nil, &assignment.FieldError{Field: "criticality", Value: uint8(r.Criticality), Allowed: "0, or one of package overload"}
	case r.Timeout != 0 && (r.Timeout < time.Millisecond || r.Timeout > httpkey.MaxTimeout):
		return nil, &assignment.FieldError{Field: "timeout", Value: r.Timeout, Allowed: "1ms to 24h"}
	case r.Upstream > H2C:
		return nil, &assignment.FieldError{Field: "upstream", Value: int(r.Upstream), Allowed: "http, https or h2c"}
	}
	return c, nil
}

// labels are those of a request.
func (c *compiled) labels(r *http.Request) (l overload.Labels) {
	l.Criticality = c.Criticality
	if c.criticality != nil {
		if text, ok := c.criticality.Find(r); ok {
			if said, err := assignment.ParseCriticality(text); err == nil {
				l.Criticality = said
			}
		}
	}
	if c.customer != nil {
		if name, ok := c.customer.Find(r); ok && assignment.ValidCustomer(name) {
			l.Customer = name
		}
	}
	return l
}

// timeout is how long a request may take, 0 for any time.
func (c *compiled) timeout(r *http.Request) time.Duration {
	said, ok := httpkey.TimeoutOf(r.Header)
	if !ok || c.Timeout > 0 && c.Timeout < said {
		return c.Timeout
	}
	return said
}

// isHost reports whether a name can be a host's: a DNS name or an IP address.
func isHost(s string) bool {
	if ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); ip != nil {
		return true
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_')
		}) {
			return false
		}
	}
	return len(s) <= maxHostLen
}

// Validate returns an error for the first rule that is not allowed, or that can
// never fit since one before it has the same host and path.
func (r Rules) Validate() error {
	_, err := r.compile()
	return err
}

func (r Rules) compile() ([]*compiled, error) {
	if r.TrustedProxies < 0 || r.TrustedProxies > httpkey.MaxProxies {
		return nil, &assignment.FieldError{Field: "trusted_proxies", Value: r.TrustedProxies, Allowed: fmt.Sprintf("0 to %d", httpkey.MaxProxies)}
	}
	if n := len(r.List); n == 0 || n > MaxRules {
		return nil, &assignment.FieldError{Field: "rules", Value: n, Allowed: fmt.Sprintf("1 to %d of them", MaxRules)}
	}
	var list []*compiled
	seen := map[[2]string]int{}
	for i, rule := range r.List {
		c, err := compile(rule)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		at := [2]string{strings.ToLower(rule.Host), rule.Path}
		if first, ok := seen[at]; ok {
			return nil, fmt.Errorf("rule %d: %w", i+1, &assignment.FieldError{Field: "path", Value: rule.Path, Allowed: fmt.Sprintf("another host or path than rule %d's", first)})
		}
		seen[at] = i + 1
		list = append(list, c)
	}
	return list, nil
}

// fits reports whether the rule is for the request.
func (c *compiled) fits(r *http.Request) bool {
	if c.host != "" {
		host := hostOf(r.Host)
		if c.below && !(len(host) > len(c.host) && strings.HasSuffix(host, c.host)) || !c.below && host != c.host {
			return false
		}
	}
	return c.path == nil || c.path.Match(r.URL)
}

// hostOf is the name alone, in lower case, without port and final dot.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
