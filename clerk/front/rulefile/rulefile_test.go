package rulefile

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk/front"
)

const all = `
trusted_proxies: 1
rules:
  - host: "*.example.com"
    path: /users/{id}/
    job: profiles
    key:
      - wildcard: id
      - header: X-User
    missing: refuse
    upstream: h2c
    timeout: 1.5s
    default_customer: batch
    limit: {rate: .5, under_way: 20}
  - job: web
    key: [{cookie: session}, {query: user}, {segment: 2}, client_address]
  - path: /about
    job: web
  - host: static.example.com
    job: files
    key: {segment: 1}
`

func TestParse(t *testing.T) {
	rules, err := Parse("rules.yaml", []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	if rules.TrustedProxies != 1 || len(rules.List) != 4 || rules.List[0].Timeout != 1500*time.Millisecond || rules.List[1].Timeout != 0 ||
		rules.List[0].Limit != (front.Limit{Rate: .5, UnderWay: 20}) || rules.List[0].DefaultCustomer != "batch" || rules.List[1].Limit != (front.Limit{}) {
		t.Fatalf("%+v", rules)
	}
	var got []string
	for _, r := range rules.List {
		line := fmt.Sprintf("%s %s %s %s %s:", r.Host, r.Path, r.Job, r.Missing, r.Upstream)
		for _, s := range r.Key {
			line += " " + s.String() + ","
		}
		got = append(got, line)
	}
	want := `*.example.com /users/{id}/ profiles refuse h2c: wildcard {id} of path /users/{id}/, header X-User,
  web any http: cookie session, query parameter user, path segment 2, client address,
 /about web any http:
static.example.com  files any http: path segment 1,`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	f, err := httpkey.New(rules.List[1].Key...)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 2.2.2.2")
	if key, _ := f.Find(r); key != "2.2.2.2" {
		t.Errorf("the client address behind a proxy is %q", key)
	}
}

func TestRefused(t *testing.T) {
	rule := func(lines string) string { return "rules:\n- job: web\n" + lines }
	for _, c := range []struct {
		file string
		line int
		want string
	}{
		{"", 0, "there are no rules in it"},
		{"# nothing", 0, "there are no rules in it"},
		{"rules: [", 1, "not YAML"},
		{"a\tb: \x00", 0, "not YAML"},
		{"rules:\n- job: web\n---\nrules:\n- job: web\n", 4, "a second document"},
		{strings.Repeat("#", MaxSize+1), 0, "at most 1048576 are allowed"},
		{"- job: web", 1, "file: \"a list of 1\" is not allowed: want fields and their values: trusted_proxies, rules"},
		{"trusted_proxies: 1\n", 1, "rules: \"missing\" is not allowed"},
		{"rules: []", 1, "rules: \"a list of 0\" is not allowed"},
		{"rules: web", 1, "rules: \"web\" is not allowed"},
		{"rules:\n- web", 2, "rule: \"web\" is not allowed"},
		{"trusted_proxies: many\nrules:\n- job: web", 1, "trusted_proxies: \"many\" is not allowed: want a whole number"},
		{"trusted_proxies: 17\nrules:\n- job: web", 1, "trusted_proxies: 17 is not allowed: want 0 to 16"},
		{"rule:\n- job: web", 1, "field of file: \"rule\" is not allowed: want trusted_proxies, rules"},
		{"rules:\n- path: /a", 2, "job: \"missing\" is not allowed"},
		{"rules:\n- path: /a\n  job: A/B", 3, "job name: \"A/B\" is not allowed"},
		{"rules:\n- path: /a\n  job:", 3, "job: \"\" is not allowed: want a value"},
		{rule("  jobb: x"), 3, "field of rule: \"jobb\" is not allowed: want host, path, job, key, missing, upstream, criticality, criticality_from, customer, default_customer, timeout, limit"},
		{rule("  path: /a\n  path: /b"), 4, "field: \"path\" is not allowed: want each field once; it is in line 3 already"},
		{rule("  path: users"), 3, "path: \"users\" is not allowed: want a path that begins with a slash"},
		{rule("  path: [a]"), 3, "path: \"a list of 1\" is not allowed"},
		{rule("  host: a_b:80"), 3, "host: \"a_b:80\" is not allowed"},
		{rule("  host: '*'"), 3, "host: \"*\" is not allowed"},
		{rule("  host: '*a'"), 3, "host: \"*a\" is not allowed"},
		{rule("  host: a..b"), 3, "host: \"a..b\" is not allowed"},
		{rule("  missing: maybe"), 3, "missing: \"maybe\" is not allowed: want any or refuse"},
		{rule("  missing: refuse"), 3, "missing: \"refuse\" is not allowed: want any, as the rule has no key"},
		{rule("  criticality: high"), 3, "criticality: \"high\" is not allowed: want critical_plus, critical, sheddable_plus or sheddable"},
		{rule("  timeout: soon"), 3, "timeout: \"soon\" is not allowed: want 1ms to 24h"},
		{rule("  timeout: 0s"), 3, "timeout: \"0s\" is not allowed: want 1ms to 24h"},
		{rule("  timeout: 25h"), 3, "timeout: 25h0m0s is not allowed: want 1ms to 24h"},
		{rule("  limit: 5"), 3, "limit: \"5\" is not allowed: want fields"},
		{rule("  limit: {}"), 3, "limit: \"no fields\" is not allowed: want rate or under_way, or both"},
		{rule("  limit: {rates: 5}"), 3, "field of limit: \"rates\" is not allowed: want rate, under_way"},
		{rule("  limit:\n    rate: fast"), 4, "rate: \"fast\" is not allowed: want requests a second, above 0 and at most 1000000"},
		{rule("  limit:\n    rate: 0"), 4, "rate: \"0\" is not allowed"},
		{rule("  limit:\n    rate: NaN"), 4, "rate: \"NaN\" is not allowed"},
		{rule("  limit:\n    rate: 1\n    under_way: 1.5"), 5, "under_way: \"1.5\" is not allowed: want a whole number"},
		{rule("  limit:\n    under_way: 0"), 4, "under_way: 0 is not allowed: want 1 to 1000000 requests"},
		{rule("  default_customer: 'a,b\tc'"), 3, "default_customer: "},
		{rule("  criticality_from: x"), 3, "criticality_from: \"x\" is not allowed: want one of header"},
		{rule("  customer:\n  - headr: X-B"), 4, "field of customer: \"headr\" is not allowed: want header, cookie"},
		{rule("  upstream: ftp"), 3, "upstream: \"ftp\" is not allowed: want http, https or h2c"},
		{rule("  key: x"), 3, "key: \"x\" is not allowed: want one of header"},
		{rule("  key: []"), 3, "key: \"a list of 0\" is not allowed: want 1 to 16 sources"},
		{rule("  key:\n  - header: X-A\n  - headr: X-B"), 5, "field of key: \"headr\" is not allowed: want header, cookie, query, wildcard, segment"},
		{rule("  key:\n  - {header: X-A, cookie: b}"), 4, "key: \"2 fields\" is not allowed"},
		{rule("  key:\n  - {}"), 4, "key: \"0 fields\" is not allowed"},
		{rule("  key:\n  - header: X A"), 4, "header: \"X A\" is not allowed"},
		{rule("  key:\n  - header: Slicer-Key"), 4, "header: \"Slicer-Key\" is not allowed"},
		{rule("  key:\n  - cookie: 'a=b'"), 4, "cookie: \"a=b\" is not allowed"},
		{rule("  key:\n  - segment: one"), 4, "segment: \"one\" is not allowed: want a whole number"},
		{rule("  key:\n  - segment: 0"), 4, "segment: 0 is not allowed: want 1 to 64"},
		{rule("  key:\n  - wildcard: id"), 4, "wildcard: \"id\" is not allowed: want a path in the rule"},
		{rule("  path: /a/{b}\n  key:\n  - wildcard: id"), 5, "wildcard: \"id\" is not allowed: want the name of a wildcard of the path, which is /a/{b}"},
		{rule("  path: a\n  key:\n  - wildcard: id"), 3, "path: \"a\" is not allowed"},
		{rule("  key: *x"), 0, "not YAML"},
		{"rules:\n- &x {job: web}\n- *x", 3, "rule: \"*x\" is not allowed"},
		{"rules:\n- {job: web, path: /a}\n- {job: app}\n- {job: app, path: /a}", 4, "path: \"/a\" is not allowed: want another host or path than the rule in line 2"},
	} {
		_, err := Parse("rules.yaml", []byte(c.file))
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v; want line %d, %s", c.file, err, c.line, c.want)
		}
	}
	_, err := Parse("rules.yaml", []byte("rules:\n- job: web\n  path: x\n"))
	var fe *assignment.FieldError
	if !errors.As(err, &fe) || fe.Field != "path" || !strings.HasPrefix(err.Error(), "rules.yaml:3: path: \"x\" is not allowed: want ") {
		t.Errorf("%v", err)
	}
}

// FuzzParse: whatever is accepted is valid, whatever is not has a line.
func FuzzParse(f *testing.F) {
	f.Add(all)
	f.Add("rules:\n- &x {job: web, key: client_address}\n- *x")
	f.Add("rules:\n- {job: web, key: {segment: 0x2}}\n---\n")
	f.Add("rules: {<<: {a: b}}")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse("f", []byte(text))
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > strings.Count(text, "\n")+strings.Count(text, "\r")+2 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if err := rules.Validate(); err != nil {
			t.Fatalf("%q: accepted, but %v", text, err)
		}
		if len(rules.List) == 0 || len(rules.List) > front.MaxRules {
			t.Fatalf("%q: %d rules", text, len(rules.List))
		}
	})
}
