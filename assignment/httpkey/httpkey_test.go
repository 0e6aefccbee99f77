package httpkey

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func mustPattern(t testing.TB, text string) *Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// request reads one as a server does.
func request(t testing.TB, target string, headers ...string) *http.Request {
	t.Helper()
	text := "GET " + target + " HTTP/1.1\r\nHost: shop.example:8080\r\n" + strings.Join(headers, "\r\n")
	if len(headers) > 0 {
		text += "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text + "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.7:4711"
	return r
}

func TestFind(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	users := mustPattern(t, "/users/{id}/")
	rest := mustPattern(t, "/files/{name...}")
	for _, c := range []struct {
		source  Source
		target  string
		headers []string
		want    string // empty: none
		why     string
	}{
		{Header("x-user"), "/", []string{"X-User: anna"}, "anna", ""},
		{Header("X-User"), "/", []string{"X-User: anna", "x-user: ben"}, "anna", ""},
		{Header("X-User"), "/", nil, "", "header X-User is absent"},
		{Header("X-User"), "/", []string{"X-User:"}, "", "header X-User is empty"},
		{Header("X-User"), "/", []string{"X-User: " + long}, "", "header X-User is longer than 4096 bytes"},
		{Header("X-User"), "/", []string{"X-User: " + long[:MaxLen]}, long[:MaxLen], ""},
		{Header("host"), "/", nil, "shop.example:8080", ""},
		{Cookie("sid"), "/", []string{"Cookie: a=b; sid=42; c=d"}, "42", ""},
		{Cookie("sid"), "/", []string{`Cookie: sid="42"`}, "42", ""},
		{Cookie("sid"), "/", []string{"Cookie: a=b", "Cookie: sid=42"}, "42", ""},
		{Cookie("sid"), "/", []string{"Cookie: ;;=;sid"}, "", "cookie sid is empty"},
		{Cookie("sid"), "/", nil, "", "cookie sid is absent"},
		{Cookie("sid"), "/", []string{"Cookie: sid="}, "", "cookie sid is empty"},
		{Cookie("sid"), "/", []string{"Cookie: sid=" + long}, "", "cookie sid is longer"},
		{Query("u"), "/?u=a+b%2F", nil, "a b/", ""},
		{Query("u"), "/?x=1&u=2&u=3", nil, "2", ""},
		{Query("u"), "/?u=%zz", nil, "", "query parameter u is malformed"},
		{Query("u"), "/?u=%zz&u=2", nil, "2", ""},
		{Query("u"), "/?u=1;2", nil, "", "malformed"},
		{Query("u"), "/?u", nil, "", "empty"},
		{Query("u"), "/?%75=7", nil, "7", ""},
		{Query("u"), "/?%zz=7", nil, "", "absent"},
		{Query("u"), "/?u=" + long, nil, "", "longer"},
		{Segment(1), "/users/4711/mail", nil, "users", ""},
		{Segment(2), "/users/4711/mail", nil, "4711", ""},
		{Segment(2), "/users/a%2Fb/mail", nil, "a/b", ""},
		{Segment(2), "/users/a%20b/mail", nil, "a b", ""},
		{Segment(2), "/users//mail", nil, "", "path segment 2 is empty"},
		{Segment(2), "/users/", nil, "", "empty"},
		{Segment(2), "/users", nil, "", "path segment 2 is absent"},
		{Segment(64), "/" + strings.Repeat("a/", 63) + "z", nil, "z", ""},
		{Wildcard(users, "id"), "/users/4711/mail", nil, "4711", ""},
		{Wildcard(users, "id"), "/users/47%2F11/mail/x", nil, "47/11", ""},
		{Wildcard(users, "id"), "/users/4711/", nil, "4711", ""},
		{Wildcard(users, "id"), "/users/4711", nil, "", "wildcard {id} of path /users/{id}/ is absent"},
		{Wildcard(users, "id"), "/users//", nil, "", "absent"},
		{Wildcard(rest, "name"), "/files/a/b%2Fc", nil, "a/b/c", ""},
		{Wildcard(rest, "name"), "/files/", nil, "", "empty"},
		{ClientAddress(0), "/", []string{"X-Forwarded-For: 1.1.1.1"}, "192.0.2.7", ""},
		{ClientAddress(1), "/", []string{"X-Forwarded-For: 1.1.1.1, 2.2.2.2"}, "2.2.2.2", ""},
		{ClientAddress(2), "/", []string{"X-Forwarded-For: 1.1.1.1,2.2.2.2"}, "1.1.1.1", ""},
		{ClientAddress(3), "/", []string{"X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 2.2.2.2, 3.3.3.3"}, "1.1.1.1", ""},
		{ClientAddress(2), "/", []string{"X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 2.2.2.2"}, "1.1.1.1", ""},
		{ClientAddress(4), "/", []string{"X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 2.2.2.2, 3.3.3.3"}, "", "absent"},
		{ClientAddress(1), "/", nil, "", "client address is absent"},
		{ClientAddress(1), "/", []string{"X-Forwarded-For: unknown"}, "", "client address is malformed"},
		{ClientAddress(1), "/", []string{"X-Forwarded-For: ::ffff:9.9.9.9"}, "9.9.9.9", ""},
		{ClientAddress(1), "/", []string{"X-Forwarded-For: [2001:db8::0:1]:80"}, "2001:db8::1", ""},
	} {
		f, err := New(c.source)
		if err != nil {
			t.Fatal(err)
		}
		r := request(t, c.target, c.headers...)
		got, ok := f.Find(r)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s of %.40s %.40s: %.40q, %v; want %.40q", f, c.target, c.headers, got, ok, c.want)
		}
		why := f.Explain(r)
		if ok != (why == nil) || !ok && !strings.Contains(why.Error(), c.why) {
			t.Errorf("%s of %.40s %.40s: explained by %v, want %q", f, c.target, c.headers, why, c.why)
		}
	}
}

func TestFallback(t *testing.T) {
	f, err := New(Header("X-User"), Cookie("sid"), ClientAddress(0))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.String(), "header X-User, else cookie sid, else client address"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for want, headers := range map[string][]string{
		"anna":      {"X-User: anna", "Cookie: sid=1"},
		"1":         {"Cookie: sid=1"},
		"2":         {"X-User: " + strings.Repeat("x", 64<<10), "Cookie: sid=2"},
		"192.0.2.7": {"X-User:", "Cookie: sid="},
	} {
		if got, ok := f.Find(request(t, "/", headers...)); got != want || !ok {
			t.Errorf("%.60q: %q, want %q", headers, got, want)
		}
	}
	r := request(t, "/")
	r.RemoteAddr = "@"
	if _, ok := f.Find(r); ok {
		t.Error("a key from nothing")
	}
	if err := f.Explain(r); err == nil || err.Error() != "the request has no key: header X-User is absent, cookie sid is absent, client address is malformed" {
		t.Errorf("explained by %v", err)
	}
}

func TestRefused(t *testing.T) {
	users := mustPattern(t, "/users/{id}")
	for want, sources := range map[string][]Source{
		"key: \"0 sources\"":            {},
		"key: \"17 sources\"":           make([]Source, MaxSources+1),
		"key: \"the zero source\"":      {{}},
		"header: \"A b\"":               {Header("A b")},
		"header: \"\"":                  {Header("")},
		"header: \"Slicer-Key\"":        {Header("slicer-key")},
		"cookie: \"a=b\"":               {Cookie("sid"), Cookie("a=b")},
		"query: \"\"":                   {Query("")},
		"segment: 0":                    {Segment(0)},
		"segment: 65":                   {Segment(65)},
		"trusted_proxies: -1":           {ClientAddress(-1)},
		"wildcard: \"name\"":            {Wildcard(users, "name")},
		"wildcard: \"\" is not allowed": {Wildcard(users, "")},
	} {
		_, err := New(sources...)
		var fe *assignment.FieldError
		if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPatternsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "begins with a slash",
		"users":                          "begins with a slash",
		"/" + strings.Repeat("a", 1<<10): "at most 1024 bytes",
		"//":                             "without empty segments",
		"/a/../b":                        "without empty segments",
		"/{a}/{a}":                       "different names",
		"/{a}/{a...}":                    "different names",
		"/{a...}/b":                      "only at the end",
		"/{$}/b":                         "only at the end",
		"/x{a}":                          "fill a segment",
		"/{}":                            "fill a segment",
		"/{1a}":                          "fill a segment",
		"/%zz":                           "percent signs",
	} {
		if p, err := ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "path: ") {
			t.Errorf("%.20q: %v, %v, want %s", text, p, err, want)
		}
	}
}

// TestPatternsLikeServeMux compares with http.ServeMux on clean paths.
func TestPatternsLikeServeMux(t *testing.T) {
	patterns := []string{
		"/", "/{$}", "/a", "/a/", "/a/{$}", "/{x}", "/{x}/", "/{x}/{$}", "/{x...}", "/a/{x}", "/a/{x}/b", "/a/{x}/{y...}",
		"/{x}/b/", "/a%2Fb/{x}", "/%41/",
	}
	paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/a/c/b", "/a/c/b/", "/c/b/d/e", "/a%2Fb/c", "/a%20b", "/A/b", "/a/b%2Fc/d", "/%41/x", "/é/b"}
	for _, text := range patterns {
		p := mustPattern(t, text)
		mux := http.NewServeMux()
		var values map[string]string
		mux.HandleFunc(text, func(w http.ResponseWriter, r *http.Request) {
			values = map[string]string{}
			for _, n := range p.Wildcards() {
				values[n] = r.PathValue(n)
			}
		})
		for _, path := range paths {
			u, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			values = nil
			mux.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", URL: u, Host: "h"})
			if got := p.Match(u); got != (values != nil) {
				t.Errorf("%s matches %s: %v", text, path, got)
			}
			for n, want := range values {
				if got, ok := p.match(u, p.wildcard(n)); got != want || !ok {
					t.Errorf("{%s} of %s in %s: %q, want %q", n, text, path, got, want)
				}
			}
		}
	}
}

func TestHeaderForm(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "user/4711": "user/4711", "100%": "100%25", "a b": "a%20b", "\r\nX: y": "%0D%0AX:%20y", "é\x00": "%C3%A9%00",
	} {
		if got := EncodeKey(key); got != want {
			t.Errorf("EncodeKey(%q) = %q, want %q", key, got, want)
		}
		if got, ok := DecodeKey(want); got != key || !ok {
			t.Errorf("DecodeKey(%q) = %q, %v", want, got, ok)
		}
	}
	for _, bad := range []string{"%", "%4", "%zz", "a b", "é", strings.Repeat("x", MaxLen+1), strings.Repeat("%41", MaxLen+1)} {
		if key, ok := DecodeKey(bad); ok {
			t.Errorf("%.20q decodes to %.20q", bad, key)
		}
	}
	h := http.Header{"Slicer-Key": {"x"}, "slicer-odd": {"y"}, "SLICER-": {"z"}, "Slice": {"kept"}, "X-Slicer-Key": {"kept"}}
	Strip(h)
	if len(h) != 2 {
		t.Errorf("stripped to %v", h)
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	f, err := New(Header("X-User"), Query("user"), Segment(2))
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "/users/4711?a=b")
	if n := testing.AllocsPerRun(100, func() { f.Find(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
