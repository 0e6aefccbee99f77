package slicelethttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
)

const distributor = "10.0.0.1:1"

// cluster is a slicelet "me" with a Distributor, on virtual time.
type cluster struct {
	t      *testing.T
	server *subscribertest.Server
	s      *slicelet.Slicelet
	last   *assignment.Assignment
}

func newCluster(t *testing.T, mode slicerv1.Mode, signals ...func() float64) *cluster {
	t.Helper()
	return newClusterWith(t, mode, func(c *slicelet.Config) { c.Signals = signals })
}

// newClusterWith has change make the slicelet's config another.
func newClusterWith(t *testing.T, mode slicerv1.Mode, change func(*slicelet.Config)) *cluster {
	t.Helper()
	network := subscribertest.NewNetwork()
	c := &cluster{t: t, server: network.Start(distributor)}
	c.server.Say(&slicerv1.Status{TakesReports: true, Mode: mode, ReportIntervalMs: 1000})
	var err error
	cfg := slicelet.Config{Job: "job", Task: "me", Address: "10.9.9.9:80", Distributors: []string{distributor}, DialOptions: network.DialOptions()}
	change(&cfg)
	c.s, err = slicelet.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// assign gives the first half of the keyspace to the one and the second to the
// other: "mo" is me and another.
func (c *cluster) assign(gen assignment.Generation, state assignment.TaskState, owners string) {
	c.t.Helper()
	self, err := wire.TaskFromProto(c.server.Heard()[0].GetHello().GetTask())
	if err != nil {
		c.t.Fatal(err)
	}
	self.State = state
	tasks := []assignment.Task{self, subscribertest.Task("other", 1)}
	var pos []uint32
	for _, o := range owners {
		pos = append(pos, uint32(strings.IndexRune("mo", o)))
	}
	c.last = subscribertest.Equal(c.t, c.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, tasks, pos...)
	c.server.Put(c.last)
	synctest.Wait()
}

func (c *cluster) stop() {
	c.t.Helper()
	if err := c.s.Close(); err != nil {
		c.t.Error(err)
	}
	c.server.Stop()
}

// mine and others are keys of the first half of the keyspace and of the second.
func keyIn(half int) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("key ", i)
		if second := assignment.KeyOf(key) >= assignment.KeyspaceEnd/2; second == (half == 1) {
			return key
		}
	}
}

func request(key string, generation string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if key != "" {
		r.Header.Set(httpkey.HeaderKey, httpkey.EncodeKey(key))
	}
	if generation != "" {
		r.Header.Set(httpkey.HeaderGeneration, generation)
	}
	return r
}

// tell answers with what the context says of the key.
func tell(w http.ResponseWriter, r *http.Request) {
	h, ok := HandleFrom(r.Context())
	fmt.Fprintf(w, "%v %v %v", ok, h.Owned(), h.AssignedContinuously())
}

func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		c.assign(10, assignment.TaskRunning, "mo")
		r := prometheus.NewRegistry()
		finder, err := httpkey.New(httpkey.Header("X-User"))
		if err != nil {
			t.Fatal(err)
		}
		h, err := Handler(c.s, http.HandlerFunc(tell), Config{Key: finder.Find, Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		byRule := request("", "")
		byRule.Header.Set("X-User", keyIn(0))
		both := request(keyIn(0), "")
		both.Header.Set("X-User", keyIn(1))
		bad := request("", "")
		bad.Header.Set(httpkey.HeaderKey, "%zz")
		for _, q := range []struct {
			r    *http.Request
			want string
		}{
			{request(keyIn(0), "10"), "true true true"},
			{byRule, "true true true"},
			{both, "true true true"},
			{request(keyIn(1), "9"), "true false false"},
			{request(keyIn(1), "11"), "true false false"},
			{request(keyIn(1), "10"), "true false false"},
			{request(keyIn(1), "x"), "true false false"},
			{request("", ""), "false false false"},
			{bad, "false false false"},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q.r)
			if w.Code != 200 || w.Body.String() != q.want {
				t.Errorf("%v: %d %s, want %s", q.r.Header, w.Code, w.Body, q.want)
			}
		}
		want := `
# HELP slicer_slicelethttp_misrouted_total Requests for keys that the task does not own, by whether the client's assignment is older or newer than the task's, and by what became of them.
# TYPE slicer_slicelethttp_misrouted_total counter
slicer_slicelethttp_misrouted_total{result="served",route="newer"} 1
slicer_slicelethttp_misrouted_total{result="served",route="older"} 1
slicer_slicelethttp_misrouted_total{result="served",route="same"} 1
slicer_slicelethttp_misrouted_total{result="served",route="unknown"} 1
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "slicer_slicelethttp_misrouted_total"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		if _, err := Handler(c.s, nil, Config{Registerer: r}); err == nil {
			t.Error("one registerer took two handlers")
		}
		// What was handled is load: 7 requests had a key.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var sum float64
		for _, m := range c.server.Heard() {
			sum += float64(m.GetReport().GetLoad().GetTotalRate()) * m.GetReport().GetLoad().GetWindowSeconds()
		}
		if int(sum+.5) != 7 {
			t.Errorf("%v requests were reported", sum)
		}
		c.stop()
	})
}

func TestRequireKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		h, err := Handler(c.s, http.HandlerFunc(tell), Config{RequireKey: true})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("", ""))
		if w.Code != 400 || !strings.Contains(w.Body.String(), "no key") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		c.stop()
	})
}

func TestConsistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A slicelet without leases owns nothing in consistent mode.
		c := newCluster(t, slicerv1.Mode_MODE_CONSISTENT)
		c.assign(10, assignment.TaskRunning, "mo")
		h, err := Handler(c.s, http.HandlerFunc(tell), Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(keyIn(1), "9"))
		if w.Code != 421 || w.Header().Get(httpkey.HeaderRefused) != "me" || w.Header().Get(httpkey.HeaderGeneration) != "10" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, request("", ""))
		if w.Code != 200 {
			t.Errorf("without a key: %d", w.Code)
		}
		c.stop()
		// Before the control plane has said anything.
		for _, leases := range []*lease.Reader{nil, {}} {
			c = newClusterWith(t, slicerv1.Mode_MODE_UNSPECIFIED, func(c *slicelet.Config) { c.Leases = leases })
			h, err := Handler(c.s, http.HandlerFunc(tell), Config{})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(keyIn(1), ""))
			if (w.Code == 421) != (leases != nil) {
				t.Errorf("with leases %v: %d", leases != nil, w.Code)
			}
			c.stop()
		}
	})
}

// TestWriter: what a server's writer can do, it can do behind the handler.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		r := prometheus.NewRegistry()
		mux := http.NewServeMux()
		mux.HandleFunc("/flush", func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() })
		mux.HandleFunc("/copy", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("copied"))
		})
		mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		})
		mux.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
		mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer c.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_ = rw.Flush()
		})
		h, err := Handler(c.s, mux, Config{Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 16)
		srv := &http.Server{Handler: h}
		served := make(chan error)
		go func() { served <- srv.Serve(lis) }()
		for path, want := range map[string]string{
			"/flush": " 200 ", "/copy": " 200 ", "/early": " 103 ", "/nothing": " 200 ", "/panic": "", "/hijack": " 101 ",
		} {
			c, err := lis.Dial()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
			line, _ := bufio.NewReader(c).ReadString('\n')
			if !strings.Contains(line, want) || want == "" && line != "" {
				t.Errorf("%s: %q", path, line)
			}
			c.Close()
		}
		synctest.Wait()
		for class, want := range map[string]int{"1xx": 1, "2xx": 3, "4xx": 1, "5xx": 1} {
			if n := observed(t, r, class); n != want {
				t.Errorf("%d answers of %s, want %d", n, class, want)
			}
		}
		srv.Close()
		<-served
		c.stop()
	})
}

func observed(t *testing.T, r *prometheus.Registry, class string) int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "code" && l.GetValue() == class {
					return int(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return -1
}

// TestDrain: slices first, then the server, which ends the requests that it has.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, timeout := range []time.Duration{0, 20 * time.Second} {
			c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
			c.assign(10, assignment.TaskRunning, "mo")
			release, inside := make(chan struct{}), make(chan struct{})
			h, err := Handler(c.s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(inside)
				select {
				case <-release:
				case <-r.Context().Done():
				}
				fmt.Fprint(w, "done")
			}), Config{})
			if err != nil {
				t.Fatal(err)
			}
			lis := bufconn.Listen(1 << 16)
			srv := &http.Server{Handler: h}
			served := make(chan error)
			go func() { served <- srv.Serve(lis) }()
			tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) }}
			answer := make(chan error)
			go func() {
				resp, err := tr.RoundTrip(httptest.NewRequest("GET", "http://h/", nil))
				if err == nil {
					resp.Body.Close()
				}
				answer <- err
			}()
			<-inside
			ctx, cancel := context.WithCancel(t.Context())
			if timeout > 0 {
				ctx, cancel = context.WithTimeout(ctx, timeout)
			}
			drained := make(chan error)
			began := time.Now()
			go func() { drained <- Drain(ctx, c.s, srv) }()
			synctest.Wait()
			if conn, err := lis.Dial(); err != nil {
				t.Error("the server stopped to accept before its slices were gone")
			} else {
				conn.Close()
			}
			if timeout == 0 {
				c.assign(11, assignment.TaskDraining, "oo")
				c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ConvergedGeneration: 11})
				time.Sleep(5 * time.Second)
				close(release)
				if err := <-drained; err != nil {
					t.Error(err)
				}
				if err := <-answer; err != nil {
					t.Errorf("the request that was being served: %v", err)
				}
			} else {
				var de *slicelet.DrainError
				if err := <-drained; !errors.As(err, &de) || de.Slices != 1 {
					t.Errorf("slices that no task takes: %v", err)
				}
				if d := time.Since(began); d > timeout+2*time.Second {
					t.Errorf("it took %s", d)
				}
				if err := <-answer; err == nil {
					t.Error("the request that was being served went on")
				}
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
			cancel()
			tr.CloseIdleConnections()
			c.server.Stop()
		}
	})
}
