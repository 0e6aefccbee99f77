package run_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// TestLocal: a request counts as made on this machine when both ends and the host that it names
// are this machine's, and no proxy can be seen to have passed it on.
func TestLocal(t *testing.T) {
	const near, far = "127.0.0.1:99", "192.0.2.7:99"
	for _, c := range []struct {
		name, from, at, first string
		headers               []string
		want                  bool
	}{
		{"by name", near, near, "GET / HTTP/1.1", []string{"Host: localhost:4721"}, true},
		{"by IPv4", near, near, "GET / HTTP/1.1", []string{"Host: 127.0.0.1"}, true},
		{"by IPv6", "[::1]:99", "[::1]:80", "GET / HTTP/1.1", []string{"Host: [::1]"}, true},
		{"from elsewhere", far, near, "GET / HTTP/1.1", []string{"Host: localhost"}, false},
		{"to elsewhere", near, far, "GET / HTTP/1.1", []string{"Host: localhost"}, false},
		{"another host", near, near, "GET / HTTP/1.1", []string{"Host: evil.example"}, false},
		{"a host that begins like one of ours", near, near, "GET / HTTP/1.1", []string{"Host: 127.0.0.1.evil.example:80"}, false},
		{"no host", near, near, "GET / HTTP/1.1", []string{"Host:"}, false},
		{"HTTP/1.0, as by nginx", near, near, "GET / HTTP/1.0", []string{"Host: localhost:4721"}, false},
		{"forwarded", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "forwarded: for=192.0.2.7"}, false},
		{"via", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "via: 1.1 proxy"}, false},
		{"for", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "x-forwarded-for: 192.0.2.7"}, false},
		{"from https", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "x-forwarded-proto: https"}, false},
		{"real address", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "x-real-ip: 192.0.2.7"}, false},
		{"an empty header", near, near, "GET / HTTP/1.1", []string{"Host: localhost", "x-forwarded-for:"}, false},
	} {
		text := c.first + "\r\n" + strings.Join(c.headers, "\r\n") + "\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		at, err := net.ResolveTCPAddr("tcp", c.at)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = c.from
		r = r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, at))
		if got := run.Local(r); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
