package page_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/cmd/internal/assignerd"
	"github.com/slicer-project/slicer/cmd/internal/ctl"
	"github.com/slicer-project/slicer/cmd/internal/distributord"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/cmd/internal/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"

	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) {
	runtest.Main(m, map[string]func() *cobra.Command{"serve": serve.Command, "assigner": assignerd.Command, "distributor": distributord.Command})
}

type overview struct {
	Jobs []struct {
		Name, State, Why, Assigner string
		Running, Tasks             int
		Load                       float64
	}
}

type state struct {
	State, Why, Mode, Process, Holding string
	Generation, Converged              int64
	Preferred                          bool
	Load                               float64
	Tasks                              struct {
		Load   []float64
		Slices []int
	}
}

type columns struct {
	Generation int64
	Count      int
	Error      string
}

type loads struct {
	Generation int64
	Levels     string
	Keys       []struct {
		Key    string
		Rate   float64
		Owners []string
	}
}

// TestPages: the page of an assigner, and that of a Distributor, tell what slicerctl tells.
func TestPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	tasks := r.job(assignment.JobConfig{Name: "cache"}, 3)
	r.job(assignment.JobConfig{Name: "empty"}, 0)
	ask(t, tasks, 100, "hot", "hot", "hot", "other", "third")
	for name, at := range map[string]string{"assigner": r.page(), "distributor": r.throughDistributor()} {
		all := until(watch(t, at+"events"), "jobs", func(v *overview) bool {
			return len(v.Jobs) == 2 && v.Jobs[1].Name == "cache" && v.Jobs[1].Running == 3 && v.Jobs[1].Load > 0 || len(v.Jobs) == 2 && v.Jobs[0].Name == "cache" && v.Jobs[0].Load > 0
		})
		if i := slices.IndexFunc(all.Jobs, func(j struct {
			Name, State, Why, Assigner string
			Running, Tasks             int
			Load                       float64
		}) bool {
			return j.Name == "empty"
		}); i < 0 || all.Jobs[i].State != "empty" {
			t.Errorf("%s: %+v", name, all.Jobs)
		}
		s := watch(t, at+"events?job=cache")
		until(s, "slices", func(v *columns) bool { return v.Count > 0 })
		l := until(s, "loads", func(v *loads) bool { return len(v.Keys) > 0 && v.Keys[0].Rate > 50 })
		if want := assignment.KeyOf("hot").String(); l.Keys[0].Key != want || len(l.Keys[0].Owners) == 0 {
			t.Errorf("%s: the hottest is %+v, want %s", name, l.Keys, want)
		}
		st := until(s, "state", func(v *state) bool { return v.Load > 0 })
		owned := 0
		for _, n := range st.Tasks.Slices {
			owned += n
		}
		if st.State == "unknown" || st.Mode != "affinity" || !st.Preferred || owned == 0 || len(st.Tasks.Load) != 3 || !strings.Contains(st.Process, name[:4]) && name == "distributor" {
			t.Errorf("%s: %+v", name, st)
		}
		if none := until(watch(t, at+"events?job=none"), "state", func(*state) bool { return true }); none.State != "unknown" || !strings.Contains(none.Why, "none") {
			t.Errorf("%s: a job that is not there: %+v", name, none)
		}
		explains(t, r, at)
	}
}

// explains compares an answer for a key with slicerctl's.
func explains(t *testing.T, r *rig, at string) {
	t.Helper()
	code, _, body := get(t, at+"explain?"+url.Values{"job": {"cache"}, "key": {"hot"}}.Encode())
	var x struct {
		Key, Start, End string
		Owners          []struct {
			Task, Why string
			Since     int64
		}
		Changes []any
	}
	if err := json.Unmarshal([]byte(body), &x); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	_, out, _ := runtest.Execute(ctl.New(), "--server", r.at, "explain", "cache", "hot")
	for _, want := range []string{x.Key, x.Owners[0].Task + " owns it since generation"} {
		if !strings.Contains(out, want) {
			t.Errorf("slicerctl does not say %q:\n%s", want, out)
		}
	}
	if x.Owners[0].Why == "" || len(x.Changes) == 0 {
		t.Errorf("no reason: %s", body)
	}
	for query, want := range map[string]int{
		"job=cache&slice=" + x.Key: 200, "job=cache&slice=zz": 400, "job=cache&slice=ffffffffffffffff": 400, "job=NO&key=x": 400, "job=none&key=x": 404, "job=empty&key=x": 404,
	} {
		if code, _, body := get(t, at+"explain?"+query); code != want {
			t.Errorf("%s: %d %s, want %d", query, code, body, want)
		}
	}
}

// A page is read only, and says to browsers what it consists of.
func TestRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.job(assignment.JobConfig{Name: "x"}, 0)
	at := r.page()
	for path, kind := range map[string]string{"": "text/html", "job?name=x": "text/html", "page.css": "text/css", "job.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		code, h, body := get(t, at+path)
		if code != 200 || !strings.HasPrefix(h.Get("Content-Type"), kind) || body == "" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: %d, %v", path, code, h)
		}
		req := httptest.NewRequest("GET", at+path, nil)
		req.Header.Set("If-None-Match", h.Get("ETag"))
		req.RequestURI = ""
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotModified {
			t.Errorf("%q: %d where it has not changed", path, resp.StatusCode)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, path := range []string{"nothing", "assets/page.css", "overview.html", "refused.html", "missing.html", "layout.html", "../page.go", "events?job=No%20name"} {
		if code, _, _ := get(t, at+path); code != 404 && code != 400 {
			t.Errorf("%s: %d", path, code)
		}
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(at+"explain?job=x&key=y", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}
}

// counting notes who asks.
type counting struct {
	slicerv1.AdminServiceServer
	mu   sync.Mutex
	asks map[string]int
}

func (c *counting) InspectJob(ctx context.Context, m *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	c.mu.Lock()
	c.asks[m.GetJob()]++
	c.mu.Unlock()
	return c.AdminServiceServer.InspectJob(ctx, m)
}

func (c *counting) count(job string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asks[job]
}

// One reader serves all viewers of a job, at most MaxFromOne at one address; without any nothing is read.
func TestViewersShareAReader(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	tasks := r.job(assignment.JobConfig{Name: "cache"}, 1)
	ask(t, tasks, 50, "hot")
	c := &counting{AdminServiceServer: page.AdminOf(r.all.RegisterAdmin), asks: make(map[string]int)}
	at := show(t, page.Config{Admin: c})
	get(t, at)
	if n := c.count("cache"); n != 0 {
		t.Errorf("%d readings for no viewer", n)
	}
	t.Run("viewers", func(t *testing.T) {
		var all []*stream
		for range page.MaxFromOne {
			all = append(all, watch(t, at+"events?job=cache"))
		}
		if s := watch(t, at+"events?job=cache"); s.code != http.StatusServiceUnavailable || !strings.Contains(s.body, "32 pages at your address") {
			t.Errorf("one more viewer: %d %s", s.code, s.body)
		}
		first := until(all[0], "state", func(s *state) bool { return s.Generation > 0 }).Generation
		before := c.count("cache")
		for _, s := range all[1:] {
			s.t = t
			until(s, "state", func(s *state) bool { return s.Generation >= first })
		}
		for i := range 4 { // of five that are read one after the other
			load := -1.
			for range 5 {
				load = until(all[i], "state", func(s *state) bool { return s.Load != load }).Load
			}
		}
		// Each viewer alone would have had as many.
		if n := c.count("cache") - before; n > 8*page.MaxFromOne {
			t.Errorf("%d readings", n)
		}
	})
	// The last reading may be under way, and the server may not know yet that all have gone.
	again := watch(t, at+"events")
	for end := time.Now().Add(limit); again.code == http.StatusServiceUnavailable && time.Now().Before(end); {
		again = watch(t, at+"events")
	}
	until(again, "jobs", func(v *overview) bool { return len(v.Jobs) == 1 })
}

const policyText = `plane: [spiffe://corp/slicer/*]
admin: [spiffe://corp/sre/*]
jobs:
  read: ["spiffe://corp/{job}/dev"]
`

// registered waits until an assigner has registered and decides for so many jobs.
func registered(t *testing.T, admin slicerv1.AdminServiceServer, jobs uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(enforce.Own(t.Context(), access.Anonymous), limit)
	defer cancel()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for {
		all, err := admin.ListAssigners(ctx, &slicerv1.ListAssignersRequest{})
		if err == nil && len(all.GetAssigners()) == 1 && all.GetAssigners()[0].GetJobs() == jobs {
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			t.Fatalf("no assigner decides for %d jobs: %v, %v", jobs, all, err)
		}
	}
}

// TestPolicy: with a policy, a viewer needs a certificate and sees what its identity may
// read; or it comes from this machine itself.
func TestPolicy(t *testing.T) {
	t.Parallel()
	rights := accesstest.Rights(t, policyText, nil)
	r := newRig(t, rights)
	r.job(assignment.JobConfig{Name: "cache"}, 0)
	r.job(assignment.JobConfig{Name: "ledger"}, 0)
	admin := page.AdminOf(r.all.RegisterAdmin)
	registered(t, admin, 2)
	p := page.New(page.Config{Kind: "slicer serve", ID: "a", Admin: admin, Rights: rights})
	defer p.Close()
	authority := accesstest.New(t)
	const far, near, nameless = "192.0.2.7:1234", "127.0.0.1:1234", "nameless"
	for _, tc := range []struct {
		name, from, at, host, id string
		header                   string
		want                     int
		jobs                     string
	}{
		{"no certificate", far, "192.0.2.1:4721", "slicer:4721", "", "", 403, ""},
		{"a certificate without a name", far, "192.0.2.1:4721", "slicer:4721", nameless, "", 403, ""},
		{"a developer", far, "192.0.2.1:4721", "slicer:4721", "spiffe://corp/cache/dev", "", 200, "cache"},
		{"an administrator", far, "192.0.2.1:4721", "slicer:4721", "spiffe://corp/sre/ann", "", 200, "cache ledger"},
		{"another's certificate", far, "192.0.2.1:4721", "slicer:4721", "spiffe://corp/other", "", 200, ""},
		{"this machine", near, "127.0.0.1:4721", "localhost:4721", "", "", 200, "cache ledger"},
		{"this machine, by IPv6", "[::1]:99", "[::1]:4721", "[::1]:4721", "", "", 200, "cache ledger"},
		{"a proxy on this machine", near, "127.0.0.1:4721", "localhost:4721", "", "X-Forwarded-For", 403, ""},
		{"a foreign site in a browser on this machine", near, "127.0.0.1:4721", "evil.example:4721", "", "", 403, ""},
		{"from this machine to its other address", near, "192.0.2.1:4721", "192.0.2.1:4721", "", "", 403, ""},
	} {
		do := func(path string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), http.LocalAddrContextKey, address(tc.at)))
			defer cancel()
			req := httptest.NewRequest("GET", path, nil).WithContext(ctx)
			req.RemoteAddr, req.Host = tc.from, tc.host
			if tc.header != "" {
				req.Header.Set(tc.header, "192.0.2.7")
			}
			if tc.id == nameless {
				req.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
			} else if tc.id != "" {
				req.TLS = shown(t, authority, tc.id)
			}
			w := &untilEvent{ResponseRecorder: httptest.NewRecorder(), end: cancel, event: "event: jobs\n"}
			if strings.Contains(path, "job=") {
				w.event = "event: state\n"
			}
			p.ServeHTTP(w, req)
			return w.ResponseRecorder
		}
		if got := do("/"); got.Code != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got.Code, tc.want)
		} else if tc.want == 403 && !strings.Contains(got.Body.String(), "ssh -N -L 4721:localhost:4721") {
			t.Errorf("%s is not told how:\n%s", tc.name, got.Body)
		}
		for _, job := range []string{"cache", "ledger", "none"} {
			want := tc.want
			if want == 200 && !slices.Contains(strings.Fields(tc.jobs), job) {
				want = 404
			}
			if got := do("/job?name=" + job); got.Code != want {
				t.Errorf("%s: page of job %s: %d, want %d", tc.name, job, got.Code, want)
			} else if all := tc.id == ""; want == 404 && (!strings.Contains(got.Body.String(), "There is no job <b>"+job+"</b> here") || strings.Contains(got.Body.String(), "that you may read") == all) {
				t.Errorf("%s: page of job %s:\n%s", tc.name, job, got.Body)
			}
		}
		got := do("/events")
		if got.Code != tc.want {
			t.Errorf("%s: events: %d, want %d", tc.name, got.Code, tc.want)
		}
		if tc.want == 200 {
			var names []string
			_, data, _ := strings.Cut(got.Body.String(), "event: jobs\ndata: ")
			data, _, _ = strings.Cut(data, "\n")
			var v overview
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatalf("%s: %v in %s", tc.name, err, got.Body)
			}
			for _, j := range v.Jobs {
				names = append(names, j.Name)
			}
			if list := strings.Join(names, " "); list != tc.jobs {
				t.Errorf("%s sees %q, want %q", tc.name, list, tc.jobs)
			}
			// A certificate's viewer is asked about by its rights, be they an administrator's.
			if counts := strings.Contains(got.Body.String(), `"jobs":2`); counts != (tc.id == "") {
				t.Errorf("%s learns how many jobs there are: %v\n%s", tc.name, counts, got.Body)
			}
		}
		for _, job := range []string{"cache", "ledger"} {
			want := tc.want
			if want == 200 && !strings.Contains(tc.jobs, job) {
				want = 403
			}
			if got := do("/events?job=" + job); got.Code != want {
				t.Errorf("%s: job %s: %d %s, want %d", tc.name, job, got.Code, got.Body, want)
			}
			if want == 200 {
				want = 404 // it has no assignment
			}
			if got := do("/explain?key=x&job=" + job); got.Code != want {
				t.Errorf("%s: a key of %s: %d %s, want %d", tc.name, job, got.Code, got.Body, want)
			}
		}
	}
	// What a policy takes away ends.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		req := httptest.NewRequest("GET", "http://localhost/events?job=cache", nil)
		req.RemoteAddr, req.TLS = far, shown(t, authority, "spiffe://corp/cache/dev")
		w := &untilEvent{ResponseRecorder: httptest.NewRecorder(), event: "event: state\n", end: func() { rights.SetPolicy(accesstest.Policy(t, "plane: [spiffe://corp/slicer/*]\n")) }}
		p.ServeHTTP(w, req)
	}()
	<-ended
}

// shown is a connection with a certificate.
func shown(t *testing.T, authority *accesstest.Authority, id string) *tls.ConnectionState {
	leaf, err := x509.ParseCertificate(authority.Issue(id).Certificate[0])
	if err != nil {
		t.Error(err)
	}
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

// storeDown is an assigner whose store does not answer.
type storeDown struct{ slicerv1.AdminServiceServer }

func (storeDown) GetJob(context.Context, *slicerv1.GetJobRequest) (*slicerv1.GetJobResponse, error) {
	return nil, status.Error(codes.Unavailable, "it is down")
}

// TestPolicyWhileStoreIsDown: that a viewer's rights are not in the store's answer gives none to
// those that have none, and takes none away.
func TestPolicyWhileStoreIsDown(t *testing.T) {
	t.Parallel()
	rights := accesstest.Rights(t, policyText, nil)
	r := newRig(t, rights)
	r.job(assignment.JobConfig{Name: "cache"}, 0)
	r.job(assignment.JobConfig{Name: "ledger"}, 0)
	p := page.New(page.Config{Admin: storeDown{page.AdminOf(r.all.RegisterAdmin)}, Rights: rights})
	defer p.Close()
	authority := accesstest.New(t)
	for job, want := range map[string]int{"cache": 200, "ledger": 200, "none": 200} { // the page says what is known
		req := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/job?name="+job, nil)
		req.RemoteAddr, req.TLS = "192.0.2.7:1234", shown(t, authority, "spiffe://corp/cache/dev")
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, req); w.Code != want {
			t.Errorf("page of %s: %d, want %d", job, w.Code, want)
		}
	}
	for job, want := range map[string]int{"cache": 200, "ledger": 403} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/events?job="+job, nil)
		req.RemoteAddr, req.TLS = "192.0.2.7:1234", shown(t, authority, "spiffe://corp/cache/dev")
		w := &untilEvent{ResponseRecorder: httptest.NewRecorder(), end: cancel, event: "event: state\n"}
		if p.ServeHTTP(w, req); w.Code != want {
			t.Errorf("%s: %d %s, want %d", job, w.Code, w.Body, want)
		}
	}
}

// TestOtherSites: a page of another site cannot have a browser take viewers' places.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	p := page.New(page.Config{Admin: slicerv1.UnimplementedAdminServiceServer{}})
	defer p.Close()
	for path, want := range map[string]int{"/events?job=cache": 403, "/explain?job=cache&key=x": 403, "/": 200} {
		for _, site := range []string{"cross-site", "same-site"} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			req := httptest.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil)
			req.Header.Set("Sec-Fetch-Site", site)
			req.Header.Set("Sec-Fetch-Dest", "empty")
			w := &untilEvent{ResponseRecorder: httptest.NewRecorder(), end: cancel, event: "event: state\n"}
			if p.ServeHTTP(w, req); w.Code != want {
				t.Errorf("%s from a page that is %s: %d, want %d", path, site, w.Code, want)
			}
			cancel()
		}
	}
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

var _ net.Addr = address("")

// untilEvent is a viewer that leaves, or does something else, once it has been sent an event.
type untilEvent struct {
	*httptest.ResponseRecorder
	event string
	end   func()
	once  sync.Once
}

func (w *untilEvent) Write(data []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(data)
	if strings.Contains(w.Body.String(), w.event) {
		w.once.Do(w.end)
	}
	return n, err
}

func (w *untilEvent) FlushError() error                { return nil }
func (w *untilEvent) SetWriteDeadline(time.Time) error { return nil }

// TestForeignNames: without a policy, a browser that a foreign site's DNS record has led to this
// machine is shown nothing.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	p := page.New(page.Config{Admin: slicerv1.UnimplementedAdminServiceServer{}, Names: []string{"ops.example.com"}})
	defer p.Close()
	for host, want := range map[string]int{
		"localhost:4721": 200, "LOCALHOST.": 200, "slicer.localhost": 200, "127.0.0.1:4721": 200, "192.0.2.1": 200, "[::1]:4721": 200, "Ops.Example.com:80": 200, "": 200,
		"evil.example:4721": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "x.ops.example.com": 403, "intranet": 403,
	} {
		for _, path := range []string{"/", "/job?name=x", "/events?job=*", "/explain"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if (w.Code == http.StatusForbidden) != (want == 403) {
				t.Errorf("%s of %q: %d %s", path, host, w.Code, w.Body)
			}
			if want == 403 && !strings.Contains(w.Body.String(), "--http-names") {
				t.Errorf("it is not told how: %s", w.Body)
			}
		}
		r := httptest.NewRequest("GET", "https://evil.example/", nil) // in TLS the name was verified
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("in TLS: %d", w.Code)
		}
	}
}
