package access_test

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/strictyaml"
)

func cert(uris []string, names ...string) *x509.Certificate {
	c := &x509.Certificate{DNSNames: names}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			u = &url.URL{Scheme: "spiffe", Host: "corp", Path: s}
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestIdentity(t *testing.T) {
	for _, tc := range []struct {
		cert *x509.Certificate
		want access.Identity
	}{
		{nil, access.Anonymous},
		{cert(nil), access.Anonymous},
		{cert([]string{"spiffe://corp/ns/a", "spiffe://corp/ns/b"}, "host"), "spiffe://corp/ns/a"},
		{cert([]string{"https://corp/x", "spiffe://corp/ns/b"}), "spiffe://corp/ns/b"},
		{cert([]string{"https://corp/x"}, "Host.Corp."), "host.corp"},
		{cert([]string{"spiffe://corp"}), "spiffe://corp"},
		// A bad name is none, and no other of the certificate takes its place.
		{cert([]string{"spiffe://corp/a?x=1"}, "host"), access.Anonymous},
		{cert([]string{"spiffe://corp/a#x"}), access.Anonymous},
		{cert([]string{"spiffe://user@corp/a"}), access.Anonymous},
		{cert([]string{"spiffe://corp:1/a"}), access.Anonymous},
		{cert([]string{"spiffe://corp/a/../b"}), access.Anonymous},
		{cert([]string{"spiffe://corp/a//b"}), access.Anonymous},
		{cert([]string{"spiffe://corp/a/"}), access.Anonymous},
		{cert([]string{"spiffe://corp/%2e"}), access.Anonymous},
		{cert([]string{"spiffe://corp/a%2fb"}), access.Anonymous},
		{cert([]string{"spiffe://CORP/a"}), access.Anonymous},
		{cert([]string{"spiffe:corp/a"}), access.Anonymous},
		{cert([]string{"spiffe:///a"}), access.Anonymous},
		{cert([]string{"spiffe://corp/" + strings.Repeat("a", 512)}), access.Anonymous},
		{cert(nil, "spiffe://corp/admin", "host"), access.Anonymous}, // a DNS name that would pass for an id
		{cert(nil, "*.corp"), access.Anonymous},
		{cert(nil, "a/b"), access.Anonymous},
		{cert(nil, "a b"), access.Anonymous},
		{cert(nil, ""), access.Anonymous},
	} {
		got := access.Of(tc.cert)
		if got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.cert, got, tc.want)
		}
		if !got.Valid() {
			t.Errorf("%q is not valid", got)
		}
		if _, why := access.Read(tc.cert); (why == access.Named) != (got != access.Anonymous) {
			t.Errorf("%+v: %q, and why it has no name: %q", tc.cert, got, why)
		}
	}
	for _, tc := range []struct {
		cert *x509.Certificate
		want access.Nameless
	}{
		{nil, access.NoCertificate},
		{cert(nil), access.NoName},
		{cert([]string{"https://corp/x"}), access.NoName},
		{cert([]string{"spiffe://corp/a?x=1"}, "host"), access.BadName},
		{cert(nil, "*.corp"), access.BadName},
		{cert(nil, "host"), access.Named},
	} {
		if _, got := access.Read(tc.cert); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.cert, got, tc.want)
		}
	}
	for _, bad := range []access.Identity{"", "Host", "a b", "spiffe://corp/a/../b", "spiffe://corp/a?", "spiffe:x", "a/b", access.Identity(strings.Repeat("a", 600)), "\x7f"} {
		if bad.Valid() {
			t.Errorf("%q is valid", bad)
		}
	}
}

const policy = `
plane: ["spiffe://corp/ns/slicer/**"]
admin: "spiffe://corp/user/sre/*"
proxies: [spiffe://corp/ns/edge/proxy]
jobs:
  own: ["spiffe://corp/ns/{job}/**"]
  watch: ["spiffe://corp/**"]
  configure: ["spiffe://corp/ns/{job}/deployer"]
bounds:
  default: {jobs: 7}
  identities:
    "spiffe://corp/ns/search/**": {tasks: 9}
    "spiffe://corp/ns/*/deployer": {jobs: 3, tasks: 4}
`

func TestMay(t *testing.T) {
	p, err := access.Parse("policy.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	own, err := assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: {"spiffe://corp/ns/mail/task/{task}"}, assignment.Order: {"spiffe://corp/ns/mail/ops"}})
	if err != nil {
		t.Fatal(err)
	}
	// The letters of the verbs that each identity has: own, watch, read, order, configure.
	for _, tc := range []struct {
		id        access.Identity
		job       string
		access    assignment.Access
		task      string
		want      string
		whichRule string
	}{
		{"spiffe://corp/user/sre/ann", "cache", assignment.Access{}, "t", "owroc", "policy admin: spiffe://corp/user/sre/*"},
		{"spiffe://corp/user/sre/ann", "mail", own, "t", "owroc", "policy admin: "},
		{"spiffe://corp/ns/slicer/distributor", "mail", own, "", "wr", "policy plane: "},
		{"spiffe://corp/ns/slicer/distributor", "cache", assignment.Access{}, "", "wr", "policy plane: "},
		{"spiffe://corp/ns/cache/server", "cache", assignment.Access{}, "t", "ow", "policy jobs, own: "},
		{"spiffe://corp/ns/cache/deployer", "cache", assignment.Access{}, "t", "owrc", ""},
		{"spiffe://corp/ns/mail/server", "cache", assignment.Access{}, "t", "w", "policy jobs, watch: "},
		{"spiffe://corp/ns/mail/task/t", "mail", own, "t", "ow", "access of the job, own: "},
		{"spiffe://corp/ns/mail/task/t", "mail", own, "u", "", "access of the job, no pattern"},
		{"spiffe://corp/ns/mail/ops", "mail", own, "t", "ro", "access of the job, order: "},
		{"spiffe://corp/ns/mail/deployer", "mail", own, "t", "", "access of the job, no pattern"}, // its own word replaces the policy's
		{access.Anonymous, "cache", assignment.Access{}, "t", "", "policy jobs, no pattern"},
		{access.Anonymous, "mail", own, "t", "", "access of the job, no pattern"},
	} {
		got, rules := "", ""
		for i, v := range assignment.Verbs {
			rule, ok := p.May(access.Question{Identity: tc.id, Verb: v, Job: tc.job, Access: tc.access, Task: tc.task})
			if ok {
				got += "owroc"[i : i+1]
			}
			rules += rule + "\n"
		}
		if got != tc.want || !strings.Contains(rules, tc.whichRule) {
			t.Errorf("%s and job %s: may %q, want %q; by\n%s", tc.id, tc.job, got, tc.want, rules)
		}
	}
	for id, want := range map[access.Identity][3]bool{ // plane, admin, carrier
		"spiffe://corp/ns/slicer/a/b": {true, false, true}, "spiffe://corp/user/sre/ann": {false, true, false},
		"spiffe://corp/ns/edge/proxy": {false, false, true}, access.Anonymous: {},
	} {
		if got := [3]bool{p.Plane(id), p.Admin(id), p.Carrier(id)}; got != want {
			t.Errorf("%s: plane, admin, carrier: %v, want %v", id, got, want)
		}
	}
	for id, want := range map[access.Identity]access.Bounds{
		"spiffe://corp/ns/search/x": {7, 9}, "spiffe://corp/ns/search/deployer": {7, 9}, "spiffe://corp/ns/mail/deployer": {3, 4}, "anonymous": {7, 10000}, "": {100, 10000},
	} {
		if got := p.Bounds(id); got != want && id != "" {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

func TestNoPolicy(t *testing.T) {
	var p *access.Policy
	if _, ok := p.May(access.Question{Identity: access.Anonymous, Verb: assignment.Configure}); !ok || !p.Plane(access.Anonymous) || !p.Admin(access.Anonymous) || p.Carrier(access.Anonymous) || p.Bounds("x") != (access.Bounds{}) {
		t.Error("without a policy something is refused")
	}
	p, err := access.Parse("p", []byte("plane: [a]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range assignment.Verbs {
		if rule, ok := p.May(access.Question{Identity: "b", Verb: v, Job: "j"}); ok {
			t.Errorf("%s is allowed by a policy that says nothing of it: %s", v, rule)
		}
	}
}

func TestBadPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                              "0 documents",
		"plane: [a]\n---\nplane: [b]\n":                 "2 documents",
		"plan: [a]\n":                                   `p:1: field of policy: "plan" is not allowed: want plane, admin, proxies, jobs, bounds`,
		"plane: [a, {}]\n":                              "p:1: plane: ",
		"plane: [1]\n":                                  "p:1: plane: ",
		"plane: ['{job}']\n":                            "p:1: plane: ",
		"\nadmin: ['{task}']\n":                         "p:2: admin: ",
		"jobs: {}\n":                                    "access: ",
		"jobs: {owns: [a]}\n":                           "field of jobs",
		"jobs: {watch: ['{task}']}\n":                   "p:1: jobs.watch: ",
		"jobs: {own: [a], own: [b]}\n":                  "jobs.own",
		"bounds: {default: {jobs: 0}}\n":                `p:1: bounds.default.jobs: "0" is not allowed: want 1 to 2147483647`,
		"bounds: {default: {tasks: 1.5}}\n":             "bounds.default.tasks",
		"bounds: {identities: [a]}\n":                   "bounds.identities",
		"bounds: {identities: {a: {}, a: {}}}\n":        "bounds.identities",
		"bounds: {identities: {'a b': {}}}\n":           "bounds.identities",
		"bounds: {identities: {a: {jobs: 3000000000}}}": "bounds.identities.a.jobs",
		"a: &a [*a]\n":                                  "",
	} {
		p, err := access.Parse("p", []byte(text))
		if _, ok := errors.AsType[*strictyaml.Error](err); p != nil || !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(policy), "spiffe://corp/ns/cache/x")
	f.Add([]byte("plane: '**'\nbounds: {identities: {'**': {}}}\n"), "a")
	f.Fuzz(func(t *testing.T, data []byte, id string) {
		p, err := access.Parse("p", data)
		if (p == nil) != (err != nil) {
			t.Fatal(p, err)
		}
		for _, v := range assignment.Verbs {
			rule, ok := p.May(access.Question{Identity: access.Identity(id), Verb: v, Job: "j", Task: id})
			if rule == "" || ok && id == "" && err == nil {
				t.Fatal(rule, ok)
			}
		}
		if b := p.Bounds(access.Identity(id)); err == nil && (b.Jobs < 1 || b.Tasks < 1) {
			t.Fatal(b)
		}
	})
}

func FuzzMatch(f *testing.F) {
	f.Add("spiffe://corp/{job}/*", "spiffe://corp/x/y", "x", "y")
	f.Fuzz(func(t *testing.T, pattern, id, job, task string) {
		ok := assignment.MatchIdentity(pattern, id, job, task)
		if !assignment.ValidPattern(pattern) || strings.ContainsAny(pattern, "*{") {
			return
		}
		if ok != (pattern == id) {
			t.Fatalf("%q for %q: %v", pattern, id, ok)
		}
	})
}

// Names are bound where the rights leave one identity for each.
func TestBound(t *testing.T) {
	for _, c := range []struct {
		jobs, access []string
		want         bool
	}{
		{access: []string{"spiffe://corp/ns/cache/task/{task}"}, want: true},
		{access: []string{"{task}.cache.corp"}, want: true},
		{access: []string{"spiffe://corp/ns/{job}/task-{task}"}, want: true},
		{access: []string{"spiffe://corp/ns/cache/task/*"}},
		{access: []string{"spiffe://corp/ns/*/task/{task}"}},
		{access: []string{"spiffe://corp/ns/task/{task}/**"}},
		{access: []string{"**"}},
		{access: []string{"spiffe://corp/a/{task}", "spiffe://corp/b/{task}"}},
		{access: []string{"spiffe://corp/a/{task}", "spiffe://corp/all"}},
		{jobs: []string{"spiffe://corp/ns/{job}/{task}"}, want: true},
		{jobs: []string{"spiffe://corp/ns/{job}/{task}"}, access: []string{"spiffe://corp/all"}},
		{jobs: []string{"spiffe://corp/all"}, access: []string{"spiffe://corp/{task}"}, want: true},
		{},
	} {
		policy := "plane: []\n"
		if c.jobs != nil {
			policy = "jobs: {own: ['" + strings.Join(c.jobs, "', '") + "']}\n"
		}
		p, err := access.Parse("policy.yaml", []byte(policy))
		if err != nil {
			t.Fatal(err)
		}
		var a assignment.Access
		if c.access != nil {
			if a, err = assignment.AccessOf(map[assignment.Verb][]string{assignment.Own: c.access}); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.Bound(a); got != c.want {
			t.Errorf("policy %v, job %v: %v", c.jobs, c.access, got)
		}
		if (*access.Policy)(nil).Bound(a) {
			t.Error("without a policy nothing is asked for")
		}
	}
}
