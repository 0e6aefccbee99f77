package clerkhttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// proxyBed is a proxy on a real port, with the real HTTP servers of a job behind it.
type proxyBed struct {
	t       *testing.T
	proxy   *Proxy
	srv     *httptest.Server
	metrics *prometheus.Registry
	a       *assignment.Assignment

	mu   sync.Mutex
	seen []*http.Request // by the tasks
}

// newFront has tasks t0, t1 and so on run the handler, which may be nil. Each
// owns one slice of equal width.
func newFront(t *testing.T, tasks int, mode slicerv1.Mode, rules Rules, handler http.HandlerFunc) *proxyBed {
	t.Helper()
	f := &proxyBed{t: t, metrics: prometheus.NewRegistry()}
	network := subscribertest.NewNetwork()
	server := network.Start(distributor)
	server.Say(&slicerv1.Status{TakesReports: true, Mode: mode})
	var list []assignment.Task
	var owners []uint32
	for i := range tasks {
		name := fmt.Sprint("t", i)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.mu.Lock()
			f.seen = append(f.seen, r.Clone(r.Context()))
			f.mu.Unlock()
			w.Header().Set("Task", name)
			if handler != nil {
				handler(w, r)
			}
		}))
		srv.Config.Protocols = protocols()
		srv.Start()
		t.Cleanup(srv.Close)
		task := subscribertest.Task(name, uint32(i))
		task.Address = srv.Listener.Addr().String()
		list, owners = append(list, task), append(owners, uint32(i))
	}
	if tasks > 0 {
		f.a = subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 1}, list, owners...)
		server.Put(f.a)
	}
	var err error
	var clerks []*clerk.Clerk
	f.proxy, err = NewProxy(ProxyConfig{
		Rules: rules, Registerer: f.metrics, Patience: 50 * time.Millisecond,
		Clerk: func(job string) (*clerk.Clerk, error) {
			ck, err := clerk.New(clerk.Config{Job: job, Distributors: []string{distributor}, DialOptions: network.DialOptions(), Registerer: f.metrics})
			clerks = append(clerks, ck)
			return ck, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if tasks > 0 {
		for _, ck := range clerks {
			if err := ck.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.srv = httptest.NewUnstartedServer(f.proxy)
	f.srv.Config.Protocols = protocols()
	f.srv.Start()
	t.Cleanup(func() {
		f.srv.Close()
		if err := f.proxy.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
	})
	return f
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// ask sends a request to the proxy.
func (f *proxyBed) ask(method, target string, body io.Reader, headers ...string) (*http.Response, string) {
	f.t.Helper()
	req, err := http.NewRequest(method, f.srv.URL+target, body)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			req.Host = v
		} else {
			req.Header.Add(k, v)
		}
	}
	resp, err := f.srv.Client().Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(text)
}

// last is the newest request that a task has seen.
func (f *proxyBed) last() *http.Request {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 {
		f.t.Fatal("no task has seen a request")
	}
	return f.seen[len(f.seen)-1]
}

// count is a counter of the proxy's, 0 if it has none.
func (f *proxyBed) count(name string, labels ...string) (n float64) {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			if family.GetName() == name && slices.Equal(has, labels) {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// jobs are those that the rules in force name.
func (f *proxyBed) jobs() (names []string) {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "slicer_proxy_request_seconds" {
				names = append(names, m.GetLabel()[0].GetValue())
			}
		}
	}
	return names
}

func (f *proxyBed) owner(key string) string { return f.a.Lookup(assignment.KeyOf(key)).At(0).Name }

func anyPath(keys ...httpkey.Source) Rules { return Rules{List: []Rule{{Job: "job", Key: keys}}} }

// raw speaks to the proxy in bytes.
func (f *proxyBed) raw(text string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	u, err := url.Parse(f.srv.URL)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}
