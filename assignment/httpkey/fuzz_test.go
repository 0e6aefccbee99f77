package httpkey

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzFind has every kind of source look at whatever a server accepts as a
// request; the query parameter must be what net/url finds.
func FuzzFind(f *testing.F) {
	f.Add("GET /users/47%2F11/a?user=%zz&user=b HTTP/1.1\r\nHost: h\r\nX-User: u\r\nCookie: sid=1\r\nX-Forwarded-For: 1.2.3.4, [::1]:9\r\n\r\n")
	f.Add("GET * HTTP/1.1\r\nHost: h\r\nCookie: sid=\"; sid\r\nX-Forwarded-For: ,,\r\n\r\n")
	f.Add("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n")
	f.Add("GET http://x/users//?user;user=1 HTTP/1.1\r\nHost: h\r\nX-User:\r\n\r\n")
	pattern := mustPattern(f, "/users/{id}/{rest...}")
	sources := []Source{
		Header("X-User"), Cookie("sid"), Query("user"), Segment(1), Segment(2), Wildcard(pattern, "id"), Wildcard(pattern, "rest"),
		ClientAddress(0), ClientAddress(1), ClientAddress(2),
	}
	all, err := New(sources...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		first, any := "", false
		for _, s := range sources {
			one, err := New(s)
			if err != nil {
				t.Fatal(err)
			}
			key, ok := one.Find(r)
			if ok != (one.Explain(r) == nil) || ok != (key != "") || len(key) > MaxLen {
				t.Fatalf("%s: %q, %v, explained by %v", s, key, ok, one.Explain(r))
			}
			if ok && !any {
				first, any = key, true
			}
			if back, fits := DecodeKey(EncodeKey(key)); back != key || !fits {
				t.Fatalf("%q became %q", key, back)
			}
		}
		if key, ok := all.Find(r); key != first || ok != any {
			t.Fatalf("%q, %v; want %q, %v", key, ok, first, any)
		}
		values, _ := url.ParseQuery(r.URL.RawQuery)
		if got, _ := query(r.URL.RawQuery, "user"); got != values.Get("user") && strings.Count(r.URL.RawQuery, "&") < 1000 {
			t.Fatalf("query %q: %q, net/url says %q", r.URL.RawQuery, got, values.Get("user"))
		}
	})
}

// FuzzPattern: what is accepted is what it says, and http.ServeMux accepts it too.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{"/", "/a/{id}/", "/{x...}", "/a/{$}", "/{a}/{a}", "/%41", "/{", "//", "/a{b}"} {
		f.Add(p, "/a/b/c")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Fatalf("%q became %q", text, p)
		}
		for _, name := range p.Wildcards() {
			if p.wildcard(name) < 0 {
				t.Fatalf("%q has no {%s}", text, name)
			}
		}
		if u, err := url.Parse(path); err == nil {
			p.Match(u)
		}
		defer func() {
			if why := recover(); why != nil {
				t.Fatalf("http.ServeMux refuses %q: %v", text, why)
			}
		}()
		http.NewServeMux().HandleFunc("GET "+text, func(http.ResponseWriter, *http.Request) {})
	})
}
