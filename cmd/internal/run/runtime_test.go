package run_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// ask makes one request, with header lines as "Name: value", and Host for the request's.
func ask(t *testing.T, client *tls.Config, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestRuntime: without a policy the level of the log and profiles are for callers on this
// machine, and not for a page of another site in a browser on it.
func TestRuntime(t *testing.T) {
	log := &run.LockedBuffer{}
	p, err := run.Start("test", &run.Flags{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Log: run.LogFlags{Level: "info", Format: "text"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	at := "http://" + p.Status.Where()
	beside := p.Log.With("id", "x")
	for _, c := range []struct {
		method, path, body string
		headers            []string
		code               int
		want               string
	}{
		{"GET", "/loglevel", "", nil, 200, "info\n"},
		{"PUT", "/loglevel", "debug\n", nil, 200, "debug\n"},
		{"PUT", "/loglevel", "trace", nil, 400, `log level: "trace" is not allowed: want debug, info, warn or error`},
		{"PUT", "/loglevel", strings.Repeat("x", 100), nil, 400, "longer than 16 bytes"},
		{"POST", "/loglevel", "info", nil, 405, ""},
		{"PUT", "/loglevel", "error", []string{"Origin: http://evil.example"}, 403, ""},
		{"GET", "/loglevel", "", []string{"Host: evil.example:80"}, 403, "localhost"},
		{"GET", "/loglevel", "", []string{"Host: [::1]:8080"}, 200, "debug"},
		{"PUT", "/loglevel", "error", []string{"X-Forwarded-For: 192.0.2.7"}, 403, "proxy"},
		{"GET", "/debug/pprof/heap?gc=1", "", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"}, 403, "another site"},
		{"GET", "/debug/pprof/", "", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: document"}, 200, "goroutine"},
		{"GET", "/debug/pprof/", "", nil, 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", nil, 200, "goroutine profile: total"},
		{"GET", "/debug/pprof/nonsense", "", nil, 404, ""},
		{"GET", "/debug/pprof/profile?seconds=1", "", []string{"Host: evil.example"}, 403, ""},
	} {
		code, body := ask(t, nil, c.method, at+c.path, c.body, c.headers...)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %q %v: %d %q, want %d %q", c.method, c.path, c.body, c.headers, code, body, c.code, c.want)
		}
	}
	p.Log.Debug("seen now")
	beside.Debug("seen here too")
	if code, _ := ask(t, nil, "PUT", at+"/loglevel", "error"); code != 200 {
		t.Errorf("PUT error: %d", code)
	}
	beside.Warn("not seen")
	for text, want := range map[string]bool{"seen now": true, "seen here too": true, "not seen": false,
		"audit=changed identity=anonymous peer=127.0.0.1:": true, "from=info to=debug": true, "from=debug to=error": true} {
		if strings.Contains(log.String(), text) != want {
			t.Errorf("the log has %q: %v, want %v\n%s", text, !want, want, log.String())
		}
	}
	// From another machine.
	r := httptest.NewRequest("GET", "http://localhost/loglevel", nil)
	r.RemoteAddr = "10.1.2.3:4"
	w := httptest.NewRecorder()
	run.ForAdmin(nil, http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != 403 || !strings.Contains(w.Body.String(), "/loglevel is for callers on this machine") {
		t.Errorf("from another machine: %d %s", w.Code, w.Body)
	}
}

// TestRuntimeWithPolicy: they are for administrators, wherever these are, and for no others.
func TestRuntimeWithPolicy(t *testing.T) {
	a := accesstest.New(t)
	files := a.Files("spiffe://corp/part")
	policy := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(policy, []byte("admin: [spiffe://corp/ann]\nplane: [spiffe://corp/part]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mutual", "server"} {
		log := &run.LockedBuffer{}
		p, err := run.Start("test", &run.Flags{Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", HTTPTLS: kind, Policy: &policy,
			TLS: run.TLS{Cert: files.Cert, Key: files.Key, CA: files.CA}, Log: run.LogFlags{Level: "info", Format: "text"}}, log)
		if err != nil {
			t.Fatal(err)
		}
		for identity, who := range map[string]string{"spiffe://corp/ann": "spiffe://corp/ann", "spiffe://corp/bob": "spiffe://corp/bob", "spiffe://corp/part": "spiffe://corp/part", accesstest.Nobody: "anonymous"} {
			want := 403
			if kind == "mutual" && who == "spiffe://corp/ann" {
				want = 200
			}
			for _, path := range []string{"/loglevel", "/debug/pprof/cmdline"} {
				if code, body := ask(t, a.ClientTLS(identity), "GET", "https://"+p.Status.Where()+path, ""); code != want {
					t.Errorf("%s, %s as %s: %d %s, want %d", kind, path, who, code, body, want)
				}
			}
		}
		if code, _ := ask(t, a.ClientTLS("spiffe://corp/ann"), "PUT", "https://"+p.Status.Where()+"/loglevel", "warn"); kind == "mutual" && (code != 200 || !strings.Contains(log.String(), "identity=spiffe://corp/ann")) {
			t.Errorf("PUT as ann: %d\n%s", code, log.String())
		}
		if !strings.Contains(log.String(), "audit=refused identity=anonymous") || !strings.Contains(log.String(), "verb=admin") {
			t.Errorf("%s: no refusal in the log:\n%s", kind, log.String())
		}
		p.Close()
	}
}
