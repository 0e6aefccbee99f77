package clerkhttp

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// TestProxyStreams: both bodies pass piece by piece.
func TestProxyStreams(t *testing.T) {
	f := newFront(t, 1, affinity, anyPath(httpkey.Segment(1)), func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		lines := bufio.NewScanner(r.Body)
		w.WriteHeader(200)
		_ = rc.Flush()
		for lines.Scan() {
			fmt.Fprintln(w, "echo", lines.Text())
			_ = rc.Flush()
		}
	})
	out, in := io.Pipe()
	req, err := http.NewRequest("POST", f.srv.URL+"/a", out)
	if err != nil {
		t.Fatal(err)
	}
	// HTTP/2 from the client: both directions at once.
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	resp, err := h2.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Errorf("the client spoke %s", resp.Proto)
	}
	answers := bufio.NewScanner(resp.Body)
	for i := range 3 {
		fmt.Fprintln(in, i)
		if !answers.Scan() || answers.Text() != fmt.Sprint("echo ", i) {
			t.Fatalf("answer %q, %v", answers.Text(), answers.Err())
		}
	}
	in.Close()
	if answers.Scan() {
		t.Errorf("more: %q", answers.Text())
	}
	if p := f.last().Proto; p != "HTTP/1.1" {
		t.Errorf("the task was spoken to in %s", p)
	}
}

// TestProxyTrailers: HTTP/2 all the way, as gRPC needs it.
func TestProxyTrailers(t *testing.T) {
	rules := anyPath(httpkey.Segment(1))
	rules.List[0].Upstream = H2C
	f := newFront(t, 1, affinity, rules, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.Header.Get("Te"), body)
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Late", "1")
	})
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	req, err := http.NewRequest("POST", f.srv.URL+"/a", strings.NewReader("hi"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Te", "trailers")
	resp, err := h2.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "HTTP/2.0 trailers hi" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Late") != "1" {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

// TestProxyUpgrade: a WebSocket is an upgraded connection, to the owner of its key.
func TestProxyUpgrade(t *testing.T) {
	for _, kind := range []policy.Kind{policy.RoundRobin, policy.LeastLoaded} {
		f := newFront(t, 2, affinity, anyPath(httpkey.Segment(1)), func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "echo" {
				http.Error(w, "no upgrade", 400)
				return
			}
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer c.Close()
			fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nTask: %s\r\n\r\n", w.Header().Get("Task"))
			_ = rw.Flush()
			for {
				line, err := rw.ReadString('\n')
				if err != nil {
					return
				}
				fmt.Fprint(rw, "echo ", line)
				_ = rw.Flush()
			}
		})
		l, _ := f.proxy.front.Find(httptest.NewRequest("GET", "/", nil))
		l.transport.cfg.Policy = kind
		c, r := f.raw("GET /room HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 101 || resp.Header.Get("Task") != f.owner("room") {
			t.Fatalf("%d by %s", resp.StatusCode, resp.Header.Get("Task"))
		}
		for i := range 3 {
			fmt.Fprintln(c, i)
			if line, err := r.ReadString('\n'); line != fmt.Sprintf("echo %d\n", i) {
				t.Fatalf("%q, %v", line, err)
			}
		}
		c.Close()
	}
}
