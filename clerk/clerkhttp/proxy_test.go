package clerkhttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

func TestProxyRoutesByEachKindOfKey(t *testing.T) {
	users, err := httpkey.ParsePattern("/users/{id}/")
	if err != nil {
		t.Fatal(err)
	}
	f := newFront(t, 4, affinity, Rules{TrustedProxies: 1, List: []Rule{
		{Host: "header.example", Job: "job", Key: []httpkey.Source{httpkey.Header("X-User")}},
		{Host: "cookie.example", Job: "job", Key: []httpkey.Source{httpkey.Cookie("sid")}},
		{Host: "query.example", Job: "job", Key: []httpkey.Source{httpkey.Query("user")}},
		{Host: "segment.example", Job: "job", Key: []httpkey.Source{httpkey.Segment(2)}},
		{Host: "*.path.example", Path: "/users/{id}/", Job: "job", Key: []httpkey.Source{httpkey.Wildcard(users, "id")}},
		{Host: "address.example", Job: "job", Key: []httpkey.Source{httpkey.ClientAddress(1)}},
		{Host: "chain.example", Job: "job", Key: []httpkey.Source{httpkey.Header("X-User"), httpkey.Cookie("sid"), httpkey.Segment(1)}},
	}}, nil)
	tasks := map[string]bool{}
	for i := range 12 {
		key := fmt.Sprintf("user %d", i)
		esc := strings.ReplaceAll(key, " ", "%20")
		ip := fmt.Sprintf("192.0.2.%d", i)
		for _, c := range []struct {
			key, target string
			headers     []string
		}{
			{key, "/", []string{"Host: header.example", "X-User: " + key}},
			{key, "/", []string{"Host: HEADER.example:80", "X-User: " + key}},
			{key, "/", []string{"Host: cookie.example", "Cookie: sid=\"" + key + "\""}},
			{key, "/a?x=1&user=" + esc, []string{"Host: query.example"}},
			{key, "/users/" + esc, []string{"Host: segment.example"}},
			{key, "/users/" + esc + "/mail", []string{"Host: a.b.path.example"}},
			{ip, "/", []string{"Host: address.example", "X-Forwarded-For: 8.8.8.8, " + ip}},
			{key, "/x", []string{"Host: chain.example", "X-User: " + key, "Cookie: sid=1"}},
			{key, "/x", []string{"Host: chain.example", "X-User: " + strings.Repeat("x", 64<<10), "Cookie: sid=\"" + key + "\""}},
			{key, "/" + esc, []string{"Host: chain.example"}},
		} {
			resp, _ := f.ask("GET", c.target, nil, c.headers...)
			want := f.owner(c.key)
			tasks[want] = true
			if got := resp.Header.Get("Task"); resp.StatusCode != 200 || got != want {
				t.Errorf("%.40s %.60s: %d by %s, want %s", c.target, c.headers, resp.StatusCode, got, want)
			}
			if got, _ := httpkey.DecodeKey(f.last().Header.Get(httpkey.HeaderKey)); got != c.key {
				t.Errorf("%.40s %.60s: key %q", c.target, c.headers, got)
			}
		}
	}
	if len(tasks) != 4 {
		t.Errorf("only %v were asked: the test shows little", tasks)
	}
	for _, c := range []struct{ host, path string }{{"path.example", "/users/1/"}, {"a.path.example", "/user/1"}, {"other.example", "/"}, {"xheader.example", "/"}} {
		if resp, body := f.ask("GET", c.path, nil, "Host: "+c.host); resp.StatusCode != 404 || !strings.Contains(body, "no rule fits host") {
			t.Errorf("%s%s: %d %s", c.host, c.path, resp.StatusCode, body)
		}
	}
	if n := f.count("slicer_proxy_no_rule_total"); n != 4 {
		t.Errorf("%v counted as without a rule", n)
	}
	if problems, err := testutil.GatherAndLint(f.metrics); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestProxyWithoutKey(t *testing.T) {
	rules := Rules{List: []Rule{
		{Path: "/strict", Job: "job", Key: []httpkey.Source{httpkey.Header("X-User"), httpkey.Cookie("sid"), httpkey.Query("u")}, Missing: Refuse},
		{Path: "/any", Job: "job", Key: []httpkey.Source{httpkey.Header("X-User")}},
	}}
	f := newFront(t, 2, affinity, rules, nil)
	for _, c := range []struct{ target, header, want string }{
		{"/strict", "A: b", "header X-User is absent, cookie sid is absent, query parameter u is absent"},
		{"/strict", "X-User: " + strings.Repeat("x", 64<<10), "header X-User is longer than 4096 bytes"},
		{"/strict", "Cookie: sid=", "cookie sid is empty"},
		{"/strict?u=%zz", "A: b", "query parameter u is malformed"},
	} {
		resp, body := f.ask("GET", c.target, nil, c.header)
		if resp.StatusCode != 400 || !strings.Contains(body, c.want) {
			t.Errorf("%s %.20s: %d %s", c.target, c.header, resp.StatusCode, body)
		}
	}
	tasks := map[string]int{}
	for range 40 {
		resp, _ := f.ask("GET", "/any", nil)
		tasks[resp.Header.Get("Task")]++
	}
	if tasks["t0"] < 1 || tasks["t1"] < 1 || tasks["t0"]+tasks["t1"] != 40 {
		t.Errorf("requests without a key went to %v", tasks)
	}
	// A path that is no path does not come as far as the rules.
	_, r := f.raw("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n")
	if line, _ := r.ReadString('\n'); !strings.Contains(line, "400") {
		t.Errorf("a bad percent-escape in the path: %s", line)
	}
}

func TestProxyHeaders(t *testing.T) {
	forge := func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Slicer-Inside", "secret") }
	headers := []string{
		"X-User: anna", "Slicer-Key: forged", "Slicer-Generation: 99", "Slicer-Other: x",
		"X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil", "Forwarded: for=6.6.6.6",
		"Connection: X-Hop", "X-Hop: 1", "Keep-Alive: x", "Proxy-Authorization: x", "X-End: kept",
	}
	for trusted, want := range map[int]string{
		0: "127.0.0.1|http|app.example|",
		1: "6.6.6.6, 127.0.0.1|https|evil|for=6.6.6.6",
	} {
		rules := anyPath(httpkey.Header("X-User"))
		rules.TrustedProxies = trusted
		f := newFront(t, 1, affinity, rules, forge)
		resp, _ := f.ask("GET", "/", nil, append(headers, "Host: app.example")...)
		if len(resp.Header["Slicer-Inside"]) > 0 {
			t.Error("what is between Slicer's programs got out")
		}
		r := f.last()
		h := r.Header
		got := strings.Join([]string{h.Get("X-Forwarded-For"), h.Get("X-Forwarded-Proto"), h.Get("X-Forwarded-Host"), h.Get("Forwarded")}, "|")
		if got != want {
			t.Errorf("with %d trusted proxies %s, want %s", trusted, got, want)
		}
		for name, want := range map[string]string{
			httpkey.HeaderKey: "anna", httpkey.HeaderGeneration: "1", "Slicer-Other": "",
			"X-Hop": "", "Keep-Alive": "", "Proxy-Authorization": "", "X-End": "kept",
		} {
			if h.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, h.Get(name), want)
			}
		}
		if r.Host != "app.example" {
			t.Errorf("Host is %q", r.Host)
		}
	}
}

// TestProxySmuggling: a request that says its length in two ways is one request.
func TestProxySmuggling(t *testing.T) {
	bodies := make(chan string, 10)
	f := newFront(t, 1, affinity, anyPath(httpkey.Segment(1)), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	})
	_, r := f.raw("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n27\r\nGET /smuggled HTTP/1.1\r\nX: 1234567890\r\n\r\n0\r\n\r\n")
	if line, _ := r.ReadString('\n'); strings.Contains(line, "200") {
		if body := <-bodies; !strings.HasPrefix(body, "GET /smuggled") {
			t.Errorf("the body is %q", body)
		}
	} else if !strings.Contains(line, "400") {
		t.Errorf("answered by %s", line)
	}
	for _, bad := range []string{
		"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
		"GET /a HTTP/1.1\r\nHost: h\r\nX-User : x\r\n\r\n",
	} {
		_, r := f.raw(bad)
		if line, _ := r.ReadString('\n'); !strings.Contains(line, " 400 ") && !strings.Contains(line, " 501 ") {
			t.Errorf("%q: %s", bad, line)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.seen {
		if r.URL.Path != "/a" || r.ContentLength != -1 {
			t.Errorf("a task got %s of %d bytes", r.URL, r.ContentLength)
		}
	}
}

func TestProxyErrors(t *testing.T) {
	code := func(f *proxyBed, method string, body io.Reader, want int, words string) {
		t.Helper()
		resp, text := f.ask(method, "/a", body)
		if resp.StatusCode != want || !strings.HasPrefix(text, "slicer: ") || !strings.Contains(text, words) {
			t.Errorf("%d %s, want %d %s", resp.StatusCode, text, want, words)
		}
		if (want == 503) != (resp.Header.Get("Retry-After") == "1") {
			t.Errorf("%d with Retry-After %q", want, resp.Header.Get("Retry-After"))
		}
		if len(resp.Header["Slicer-Refused-Task"]) > 0 {
			t.Error("the refusal got out")
		}
		if len(resp.Header["Slicer-Lost-Task"]) > 0 {
			t.Error("the task's header got out")
		}
	}
	none := newFront(t, 0, affinity, anyPath(httpkey.Segment(1)), nil)
	code(none, "GET", nil, 503, `job "job" has no task`)
	if err := none.proxy.Ready(); err == nil || err.Error() != `job "job" has no assignment yet` {
		t.Errorf("Ready: %v", err)
	}

	broken := newFront(t, 1, affinity, anyPath(httpkey.Segment(1)), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err := broken.proxy.Ready(); err != nil {
		t.Error(err)
	}
	code(broken, "POST", strings.NewReader("x"), 502, "broke the connection off")

	refusing := newFront(t, 1, consistent, anyPath(httpkey.Segment(1)), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		refuse("t0")(w, r)
	})
	code(refusing, "GET", nil, 503, "owned the request's key in time")
	code(refusing, "POST", strings.NewReader("small"), 503, "in time")
	code(refusing, "POST", strings.NewReader(strings.Repeat("x", 1<<20)), 421, "send it again")
	var tries atomic.Int64
	losing := newFront(t, 1, consistent, anyPath(httpkey.Segment(1)), func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		lose("t0")(w, r)
	})
	code(losing, "POST", strings.NewReader("small"), 502, "may have been carried out")
	if n := tries.Load(); n != 1 {
		t.Errorf("a POST that may have been carried out was sent %d times", n)
	}
	code(losing, "GET", nil, 502, "may have been carried out")
	if n := tries.Load(); n < 3 {
		t.Errorf("a GET was sent %d times", n-1)
	}
	if n := refusing.count("slicer_proxy_requests_total", "job=job", "result=5xx"); n != 2 {
		t.Errorf("%v counted as 5xx", n)
	}
}

func TestSetRules(t *testing.T) {
	f := newFront(t, 2, affinity, anyPath(httpkey.Header("X-User")), nil)
	if err := f.proxy.SetRules(Rules{}); err == nil {
		t.Error("no rules are allowed")
	}
	var fe *assignment.FieldError
	if err := f.proxy.SetRules(Rules{List: []Rule{{Job: "other"}, {Job: "x", Path: "y"}}}); !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), "rule 2: path: ") {
		t.Errorf("bad rules: %v", err)
	}
	if !slices.Equal(f.jobs(), []string{"job"}) {
		t.Error("a half of bad rules is in force")
	}
	if resp, _ := f.ask("GET", "/", nil, "X-User: anna"); resp.Header.Get("Task") != f.owner("anna") {
		t.Error("the old rules are not in force")
	}
	if err := f.proxy.SetRules(Rules{List: []Rule{{Path: "/o/", Job: "other"}, {Job: "job", Key: []httpkey.Source{httpkey.Header("X-Other")}}}}); err != nil {
		t.Fatal(err)
	}
	if resp, _ := f.ask("GET", "/", nil, "X-Other: ben"); resp.Header.Get("Task") != f.owner("ben") {
		t.Error("the new rules are not in force")
	}
	if !slices.Equal(f.jobs(), []string{"job", "other"}) {
		t.Errorf("jobs %v", f.jobs())
	}
	if err := f.proxy.SetRules(Rules{List: []Rule{{Job: "other"}}}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.jobs(), []string{"other"}) {
		t.Error("a job that no rule names any more is kept")
	}
	if err := f.proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.proxy.SetRules(anyPath()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if resp, _ := f.ask("GET", "/", nil); resp.StatusCode != 404 {
		t.Errorf("closed: %d", resp.StatusCode)
	}
}

// TestProxyLimit: what is above a rule's limit is refused, and holds up nothing else.
func TestProxyLimit(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	f := newFront(t, 1, affinity, Rules{List: []Rule{
		{Path: "/one/", Job: "job", Limit: Limit{UnderWay: 1}},
		{Path: "/slow/", Job: "job", Limit: Limit{Rate: .001}, CriticalityFrom: []httpkey.Source{httpkey.Header("X-Criticality")}},
		{Job: "job"},
	}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/one/a" {
			inside <- struct{}{}
			<-release
		}
	})
	done := make(chan int)
	go func() {
		resp, _ := f.ask("GET", "/one/a", nil)
		done <- resp.StatusCode
	}()
	<-inside
	if resp, body := f.ask("GET", "/one/b", nil); resp.StatusCode != 429 || !strings.Contains(body, "lets 1 requests at a time through to job \"job\"") {
		t.Errorf("a second one: %d %s", resp.StatusCode, body)
	}
	if resp, _ := f.ask("GET", "/", nil); resp.StatusCode != 200 {
		t.Errorf("by another rule: %d", resp.StatusCode)
	}
	close(release)
	if code := <-done; code != 200 {
		t.Errorf("the first one: %d", code)
	}
	if resp, _ := f.ask("GET", "/one/b", nil); resp.StatusCode != 200 {
		t.Errorf("when the first one has ended: %d", resp.StatusCode)
	}
	// Three may come at once; the less critical leave some to the others.
	for _, c := range []struct {
		criticality string
		want        int
	}{{"sheddable", 200}, {"sheddable", 200}, {"sheddable", 429}, {"critical", 200}, {"critical", 429}} {
		if resp, body := f.ask("GET", "/slow/", nil, "X-Criticality: "+c.criticality); resp.StatusCode != c.want || c.want == 429 && !strings.Contains(body, "lets 0.001 requests a second through") {
			t.Errorf("%s: %d %s, want %d", c.criticality, resp.StatusCode, body, c.want)
		}
	}
	if n := f.count("slicer_proxy_requests_total", "job=job", "result=limited"); n != 3 {
		t.Errorf("%v counted as limited", n)
	}
}

// TestProxyLabels: the rules say how critical requests are and whom they are charged to;
// what requests say in Slicer's own headers counts for nothing.
func TestProxyLabels(t *testing.T) {
	users := []httpkey.Source{httpkey.Header("X-Tenant"), httpkey.Cookie("tenant")}
	f := newFront(t, 1, affinity, Rules{List: []Rule{
		{Path: "/batch/", Job: "job", Criticality: overload.SheddablePlus},
		{Path: "/ours/", Job: "job", Customer: users, DefaultCustomer: "batch"},
		{Path: "/api/", Job: "job", CriticalityFrom: []httpkey.Source{httpkey.Header("X-Criticality")}, Criticality: overload.Critical, Customer: users},
		{Job: "job"},
	}}, nil)
	for _, c := range []struct {
		path, want string
		headers    []string
	}{
		{"/", "   ", nil},
		{"/", "   ", []string{"Slicer-Criticality: critical_plus", "Slicer-Cohort: 127", "Slicer-Customer: mail"}},
		{"/batch/1", "sheddable_plus   ", []string{"X-Criticality: critical_plus", "Slicer-Criticality: critical_plus"}},
		{"/ours/1", "  batch ", nil},
		{"/ours/1", "  mail ", []string{"X-Tenant: mail"}},
		{"/api/1", "critical   ", nil},
		{"/api/1", "sheddable  mail ", []string{"X-Criticality: sheddable", "X-Tenant: mail", "Cookie: tenant=other"}},
		{"/api/1", "critical  other ", []string{"X-Criticality: high", "Cookie: tenant=other"}},
		{"/api/1", "critical   ", []string{"X-Tenant: " + strings.Repeat("x", 129)}},
		{"/api/1", "critical   ", []string{"X-Tenant: a b"}},
	} {
		if resp, _ := f.ask("GET", c.path, nil, append([]string{"Host: x"}, c.headers...)...); resp.StatusCode != 200 {
			t.Errorf("%s: %d", c.path, resp.StatusCode)
		}
		if got := labelsOf(f.last()); got != c.want {
			t.Errorf("%s %.100s: %q, want %q", c.path, c.headers, got, c.want)
		}
	}
	if err := (Rule{Job: "job", Criticality: 9}).Validate(); err == nil || !strings.Contains(err.Error(), "criticality: 9 is not allowed") {
		t.Errorf("criticality 9: %v", err)
	}
}

// TestProxyTimeout: a request ends after the rule's timeout, or its own if that is shorter, and
// its task is told.
func TestProxyTimeout(t *testing.T) {
	var stuck atomic.Bool
	f := newFront(t, 1, affinity, Rules{List: []Rule{
		{Path: "/api/", Job: "job", Timeout: time.Minute},
		{Path: "/soon/", Job: "job", Timeout: 30 * time.Millisecond},
		{Job: "job"},
	}}, func(_ http.ResponseWriter, r *http.Request) {
		if stuck.Load() {
			<-r.Context().Done()
		}
	})
	for _, c := range []struct {
		path, says  string
		least, most int // ms, that the task is told; 0: nothing
	}{
		{"/", "", 0, 0},
		{"/", "90000", 60_001, 90_000},
		{"/", "-1", 0, 0},
		{"/", "86400001", 0, 0},
		{"/api/1", "", 30_000, 60_000},
		{"/api/1", "90000", 30_000, 60_000},
		{"/api/1", "20000", 1, 20_000},
	} {
		headers := []string{"Host: x"}
		if c.says != "" {
			headers = append(headers, "Slicer-Timeout: "+c.says)
		}
		if resp, body := f.ask("GET", c.path, nil, headers...); resp.StatusCode != 200 {
			t.Errorf("%s %s: %d %s", c.path, c.says, resp.StatusCode, body)
		}
		told, ok := httpkey.TimeoutOf(f.last().Header)
		if ms := int(told.Milliseconds()); ok != (c.most > 0) || ms < c.least || ms > c.most {
			t.Errorf("%s %s: the task is told %v, want %d to %d ms", c.path, c.says, told, c.least, c.most)
		}
	}
	stuck.Store(true)
	if resp, body := f.ask("GET", "/soon/1", nil, "Host: x"); resp.StatusCode != 504 || !strings.Contains(body, "answered in time") {
		t.Errorf("a task that does not answer: %d %s", resp.StatusCode, body)
	}
	for _, d := range []time.Duration{-1, time.Microsecond, 25 * time.Hour} {
		if err := (Rule{Job: "job", Timeout: d}).Validate(); err == nil || !strings.Contains(err.Error(), "timeout: ") {
			t.Errorf("timeout %v: %v", d, err)
		}
	}
}
