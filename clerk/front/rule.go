package front

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
	// first that has one; else it is DefaultCustomer, empty for none.
	Customer        []httpkey.Source
	DefaultCustomer string
	// Timeout is how long a request may take altogether, 1 ms to httpkey.MaxTimeout, 0 for
	// any time; then it is answered by 504, or DEADLINE_EXCEEDED. Tasks are told, so that they
	// begin only what they can answer in time. A request may say a shorter one itself, in
	// httpkey.HeaderTimeout or as gRPC does.
	Timeout time.Duration
	// Limit is what this proxy lets through.
	Limit Limit
}

// Missing says what becomes of a request without a key.
type Missing uint8

const (
	// AnyTask: it goes to a task of the clerk's subset.
	AnyTask Missing = iota
	// Refuse: it is refused.
	Refuse
)

var missingNames = [...]string{AnyTask: "any", Refuse: "refuse"}

func (m Missing) String() string { return missingNames[min(int(m), len(missingNames)-1)] }

// ParseMissing reads what String prints.
func ParseMissing(s string) (Missing, error) {
	for m, name := range missingNames {
		if s == name {
			return Missing(m), nil
		}
	}
	return 0, &assignment.FieldError{Field: "missing", Value: s, Allowed: "any or refuse"}
}

// Upstream is a protocol that tasks speak, for proxies of HTTP.
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

// Scheme is that of URLs.
func (u Upstream) Scheme() string {
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

// Matcher is a rule that is ready to be matched.
type Matcher struct {
	Rule
	limiter *limiter // nil for none
	host    string   // in lower case, without the *
	below   bool     // the host begins with *.
	path    *httpkey.Pattern
	finder  *httpkey.Finder
	// Each is nil if the rule has no such sources.
	criticality, customer *httpkey.Finder
}

func compile(r Rule) (*Matcher, error) {
	c := &Matcher{Rule: r}
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
	case r.DefaultCustomer != "" && !assignment.ValidCustomer(r.DefaultCustomer):
		return nil, &assignment.FieldError{Field: "default_customer", Value: r.DefaultCustomer, Allowed: fmt.Sprintf("1 to %d printable ASCII characters without space", assignment.MaxCustomerLen)}
	case r.Timeout != 0 && (r.Timeout < time.Millisecond || r.Timeout > httpkey.MaxTimeout):
		return nil, &assignment.FieldError{Field: "timeout", Value: r.Timeout, Allowed: "1ms to 24h"}
	case r.Upstream > H2C:
		return nil, &assignment.FieldError{Field: "upstream", Value: int(r.Upstream), Allowed: "http, https or h2c"}
	}
	c.limiter, err = newLimiter(r.Limit)
	return c, err
}

// Key finds the key of a request. It is not ok if there is none; the error is not nil if
// the rule refuses such requests, and says why there is none.
func (m *Matcher) Key(r *http.Request) (key string, ok bool, err error) {
	if m.finder == nil {
		return "", false, nil
	}
	if key, ok = m.finder.Find(r); !ok && m.Missing == Refuse {
		err = &NoKeyError{m.finder.Explain(r)}
	}
	return key, ok, err
}

// NoKeyError is that of a request that has no key, by a rule that wants one.
type NoKeyError struct{ Why error }

func (e *NoKeyError) Error() string { return e.Why.Error() }

// Labels are those of a request, as far as the rule says.
func (m *Matcher) Labels(r *http.Request) (l overload.Labels) {
	l.Criticality, l.Customer = m.Criticality, m.DefaultCustomer
	if m.criticality != nil {
		if text, ok := m.criticality.Find(r); ok {
			if said, err := assignment.ParseCriticality(text); err == nil {
				l.Criticality = said
			}
		}
	}
	if m.customer != nil {
		if name, ok := m.customer.Find(r); ok && assignment.ValidCustomer(name) {
			l.Customer = name
		}
	}
	return l
}

// TimeoutOf is how long a request may take, 0 for any time.
func (m *Matcher) TimeoutOf(r *http.Request) time.Duration {
	said, ok := httpkey.TimeoutOf(r.Header)
	if !ok || m.Timeout > 0 && m.Timeout < said {
		return m.Timeout
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
	_, err := r.compile(nil)
	return err
}

// Check is Validate with a check of each rule beside.
func (r Rules) Check(rule func(Rule) error) error {
	_, err := r.compile(rule)
	return err
}

func (r Rules) compile(check func(Rule) error) ([]*Matcher, error) {
	if r.TrustedProxies < 0 || r.TrustedProxies > httpkey.MaxProxies {
		return nil, &assignment.FieldError{Field: "trusted_proxies", Value: r.TrustedProxies, Allowed: fmt.Sprintf("0 to %d", httpkey.MaxProxies)}
	}
	if n := len(r.List); n == 0 || n > MaxRules {
		return nil, &assignment.FieldError{Field: "rules", Value: n, Allowed: fmt.Sprintf("1 to %d of them", MaxRules)}
	}
	var list []*Matcher
	seen := map[[2]string]int{}
	for i, rule := range r.List {
		c, err := compile(rule)
		if err == nil && check != nil {
			err = check(rule)
		}
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
func (m *Matcher) fits(r *http.Request) bool {
	if m.host != "" {
		host := hostOf(r.Host)
		if m.below && !(len(host) > len(m.host) && strings.HasSuffix(host, m.host)) || !m.below && host != m.host {
			return false
		}
	}
	return m.path == nil || m.path.Match(r.URL)
}

// hostOf is the name alone, in lower case, without port and final dot.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
