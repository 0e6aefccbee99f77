package search

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/kit/bed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// maxLines is what the documentation promises.
const maxLines = 50

func TestLines(t *testing.T) {
	data, err := os.ReadFile("server/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n > maxLines {
		t.Errorf("the server has %d lines, limit %d", n, maxLines)
	}
}

// pressed is a pressure of the test's choice.
type pressed float64

func (p pressed) Pressure() float64 { return float64(p) }

func under(p float64) context.Context {
	return context.WithValue(context.Background(), overload.PressureKey{}, pressed(p))
}

// documents are so many; each hundredth is about trees.
func documents(n int) (x Index) {
	for i := range n {
		subject := "stones"
		if i%100 == 0 {
			subject = "Trees"
		}
		x = append(x, fmt.Sprintf("document %d is about %s", i, subject))
	}
	return x
}

// TestFind: how much is looked at depends on the pressure.
func TestFind(t *testing.T) {
	x := documents(4000)
	for _, c := range []struct {
		pressure float64
		found    int
		partial  bool
	}{{0, 10, false}, {.29, 10, false}, {.3, 2, true}, {1, 2, true}} {
		a := x.Find(under(c.pressure), "TREES")
		if len(a.Found) != c.found || a.Partial != c.partial || a.Found[0] != x[0] {
			t.Errorf("under a pressure of %v: %+v, want %d documents, partial %v", c.pressure, a, c.found, c.partial)
		}
	}
	if a := (Index{}).Find(under(1), "trees"); len(a.Found) > 0 {
		t.Errorf("%+v", a)
	}
	if a := (Index{"a tree"}).Find(under(1), "tree"); len(a.Found) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestTenant(t *testing.T) {
	for path, want := range map[string]string{"/tenants/x/search": "x", "/tenants/": "", "/": ""} {
		if got, ok := Tenant(httptest.NewRequest("GET", path, nil)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
}

// serve is a server of the job, whose admission is on, with one more signal, and a client.
func serve(t *testing.T, handler http.Handler, signal func() float64) *http.Client {
	t.Helper()
	plane := bed.Start(t, bed.Config{})
	cfg := assignment.JobConfig{Name: "search", Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}}
	if err := plane.PutJob(t.Context(), cfg.WithDefaults()); err != nil {
		t.Fatal(err)
	}
	lis := bed.Listen(t)
	s, err := slicelet.New(slicelet.Config{
		Job: "search", Task: "search-0", Address: lis.Addr().String(), Distributors: plane.Addrs(), Signals: []func() float64{signal},
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := slicelethttp.Handler(s, handler, slicelethttp.Config{Key: Tenant})
	if err != nil {
		t.Fatal(err)
	}
	bed.ServeHTTP(t, lis, h, s.Close)
	ck, err := clerk.New(clerk.Config{Job: "search", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, ck.Close)
	tr, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: ck, Key: Tenant})
	if err != nil {
		t.Fatal(err)
	}
	bed.CloseAtEnd(t, tr.Close)
	return &http.Client{Transport: tr}
}

// TestServer: a server that is nearly full says so by its answers.
func TestServer(t *testing.T) {
	var full atomic.Bool
	x := documents(1000)
	client := serve(t, Handler(func(string) Index { return x }), func() float64 {
		if full.Load() {
			return .9
		}
		return 0
	})
	for _, want := range []bool{false, true, false} {
		full.Store(want)
		for began := time.Now(); ; {
			a, err := ask(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			if a.Partial == want && len(a.Found) == map[bool]int{false: 10, true: 1}[want] {
				break
			}
			if time.Since(began) > waittest.Patience {
				t.Fatalf("full %v: %+v", want, a)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func ask(ctx context.Context, client *http.Client) (a Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://search/tenants/a/search?word=trees", nil)
	if err != nil {
		return a, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("status %d", resp.StatusCode)
	}
	return a, json.NewDecoder(resp.Body).Decode(&a)
}
