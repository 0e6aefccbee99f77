package sidecar

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/test/slicertest"
)

// TestPasses: requests of HTTP/1.1 and HTTP/2, WebSockets and gRPC reach the server, with their
// keys, which rules find where the request does not say its own.
func TestPasses(t *testing.T) {
	env := slicertest.New(t)
	upstream := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ws":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			fmt.Fprint(rw, "echo ", line)
			_ = rw.Flush()
		case "/helloworld.Greeter/SayHello":
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			echo("a")(w, r)
			w.Header().Set("Grpc-Status", "0")
		case "/full":
			w.Header().Set(httpkey.HeaderOverloaded, "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set(httpkey.HeaderLoad, "2.5")
			echo("a")(w, r)
		}
	})
	b := start(t, env, "a", upstream.address, nil)
	keys, err := front.NewKeys(byUser, "web")
	if err != nil {
		t.Fatal(err)
	}
	b.SetKeys(keys)
	eventually(t, "ready", func() bool { return b.Ready() == nil })
	owners(t, env.Clerk(clerk.Config{Job: "web"}), "a")
	client, url := newClient(t), "http://"+b.address

	if code, got, h := send(client, url+"/x", "Slicer-Key: ada%20l", "X-Forwarded-For: 9.9.9.9", "Slicer-Generation: 1", "Slicer-Fencing-Token: 7"); code != 200 || got != "a HTTP/1.1 GET /x key=ada%20l from=9.9.9.9, 127.0.0.1 " || h.Get(httpkey.HeaderLoad) != "" {
		t.Errorf("with a key: %d %q %v", code, got, h)
	}
	if code, got, _ := send(client, url+"/users/1/?user=bob"); code != 200 || !strings.Contains(got, " key=bob ") {
		t.Errorf("with a key that rules find: %d %q", code, got)
	}
	if code, got, _ := send(client, url+"/users/1/"); code != 400 {
		t.Errorf("without one that rules want: %d %q", code, got)
	}
	if code, got, _ := send(client, url+"/other"); code != 200 || !strings.Contains(got, " key= ") {
		t.Errorf("without one: %d %q", code, got)
	}
	if code, _, h := send(client, url+"/full", "Slicer-Key: k"); code != 503 || h.Get(httpkey.HeaderOverloaded) != httpkey.OverloadedAll {
		t.Errorf("without room: %d %v", code, h)
	}

	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	r, _ := http.NewRequest("POST", url+"/helloworld.Greeter/SayHello", strings.NewReader("hi"))
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := h2.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.HasPrefix(string(body), "a HTTP/2.0 POST") || !strings.HasSuffix(string(body), " hi") || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("gRPC: %q, trailer %v", body, resp.Trailer)
	}
	r, _ = http.NewRequest("GET", url+"/x", nil)
	if resp, err = h2.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.ProtoMajor != 2 || !strings.HasPrefix(string(body), "a HTTP/1.1 GET") {
		t.Errorf("HTTP/2: %s, %q", resp.Proto, body)
	}

	c, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSlicer-Key: k\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err = http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("upgrade: %v, %v", resp, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("WebSocket: %q, %v", line, err)
	}
}

// TestServerDies: a task whose server is dead gives its keys up within two looks at it, in a new
// incarnation, and takes keys again when the server is back. No idempotent request is lost.
func TestServerDies(t *testing.T) {
	env := slicertest.New(t)
	servers := []*server{startServer(t, echo("a")), startServer(t, echo("b"))}
	a, b := start(t, env, "a", servers[0].address, nil), start(t, env, "b", servers[1].address, nil)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	client := routed(t, c)
	var sent, lost atomic.Int64
	stop := waittest.Repeat(4, func(n, i int) {
		if code, got, _ := send(client, fmt.Sprintf("http://web/?key=%d-%d", n, i)); code != 200 {
			lost.Add(1)
			t.Errorf("%d %s", code, got)
		}
		sent.Add(1)
	})
	before, _ := c.Assignment().Position("a") // the clerk has it, as owners has seen; the slicelets may not yet
	was := c.Assignment().Task(before).Incarnation
	servers[0].kill()
	owners(t, c, "b")
	eventually(t, "a is not ready", func() bool { return a.Ready() != nil })
	if !strings.Contains(a.Ready().Error(), "does not answer") || b.Ready() != nil {
		t.Errorf("ready: a %v, b %v", a.Ready(), b.Ready())
	}
	if n := testutil.ToFloat64(a.metrics.deaths); n != 1 {
		t.Errorf("%v deaths", n)
	}
	servers[0].start()
	owners(t, c, "a", "b")
	eventually(t, "a is ready", func() bool { return a.Ready() == nil })
	pos, _ := c.Assignment().Position("a")
	if c.Assignment().Task(pos).Incarnation == was {
		t.Error("the server has come back, and its task is the same incarnation")
	}
	stop()
	if sent.Load() == 0 {
		t.Error("nothing was sent")
	}
	t.Logf("%d requests, %d lost", sent.Load(), lost.Load())
}

// TestUnderWay: a request that is under way at a server that dies goes to another task if a clerk has
// sent it, and may send it again. Others hear that the connection broke.
func TestUnderWay(t *testing.T) {
	env := slicertest.New(t)
	inside := make(chan struct{}, 2)
	dies := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-r.Context().Done()
	})
	a, _ := start(t, env, "a", dies.address, nil), start(t, env, "b", startServer(t, echo("b")).address, nil)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	client, stranger := routed(t, c), newClient(t)
	key := "k"
	for i := 0; c.Lookup(key).At(0).Name != "a"; i++ {
		key = fmt.Sprint(i)
	}
	type answer struct {
		code int
		body string
	}
	got, strange := make(chan answer, 1), make(chan answer, 1)
	go func() { code, body, _ := send(client, "http://web/?key="+key); got <- answer{code, body} }()
	go func() { code, body, _ := send(stranger, "http://"+a.address+"/"); strange <- answer{code, body} }()
	<-inside
	<-inside
	dies.kill()
	if x := <-got; x.code != 200 || x.body[0] != 'b' {
		t.Errorf("by a clerk: %+v", x)
	}
	if x := <-strange; x.code != 502 {
		t.Errorf("by a stranger: %+v", x)
	}
}

// TestDrain: a drain, by its keys' move and its server's shutdown, loses no request, be it a POST.
func TestDrain(t *testing.T) {
	env := slicertest.New(t)
	slow := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Millisecond)
			echo(name)(w, r)
		}
	}
	a, b := start(t, env, "a", startServer(t, slow("a")).address, nil), start(t, env, "b", startServer(t, slow("b")).address, nil)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	client := routed(t, c)
	var byA, byB atomic.Int64
	stop := waittest.Repeat(4, func(n, i int) {
		resp, err := client.Post(fmt.Sprintf("http://web/?key=%d-%d", n, i), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode != 200:
			t.Errorf("%d %s", resp.StatusCode, body)
		case body[0] == 'a':
			byA.Add(1)
		default:
			byB.Add(1)
		}
	})
	eventually(t, "both serve", func() bool { return byA.Load() > 10 && byB.Load() > 10 })
	if err := a.Drain(t.Context(), a.server); err != nil {
		t.Errorf("drain: %v", err)
	}
	served := byA.Load()
	n := byB.Load()
	eventually(t, "b serves on", func() bool { return byB.Load() > n+10 })
	stop()
	if byA.Load() != served || b.Ready() != nil {
		t.Errorf("after the drain a has served %d more; b: %v", byA.Load()-served, b.Ready())
	}
}

// TestMisrouted: what becomes of a request for another task's key is as Config.Misrouted says.
func TestMisrouted(t *testing.T) {
	env := slicertest.New(t)
	servers := []*server{startServer(t, echo("a")), startServer(t, echo("b"))}
	b := start(t, env, "b", servers[1].address, nil)
	all := map[Misrouted]*beside{}
	for _, m := range []Misrouted{Serve, Refuse, Forward} {
		all[m] = start(t, env, string(m), servers[0].address, func(cfg *Config) { cfg.Misrouted = m })
	}
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "b", "forward", "refuse", "serve")
	env.Assign("web", slicertest.Spread("b"), slicertest.Key("mine", "forward"))
	client := newClient(t)
	for m, want := range map[Misrouted]string{Serve: "200 a", Refuse: "421 s", Forward: "200 b"} {
		code, got, h := send(client, "http://"+all[m].address+"/", "Slicer-Key: k")
		if fmt.Sprint(code, " ", got[:1]) != want || (h.Get(httpkey.HeaderRefused) == string(m)) != (m == Refuse) {
			t.Errorf("%s: %d %s %v", m, code, got, h)
		}
	}
	if code, got, _ := send(client, "http://"+all[Forward].address+"/", "Slicer-Key: mine"); code != 200 || got[0] != 'a' {
		t.Errorf("its own key: %d %s", code, got)
	}
	// One that was passed on is passed on no further.
	if code, got, _ := send(client, "http://"+all[Forward].address+"/", "Slicer-Key: k", "Slicer-Forwarded: 1"); code != 200 || got[0] != 'a' {
		t.Errorf("passed on again: %d %s", code, got)
	}
	_ = b.server.Close()
	if code, got, h := send(client, "http://"+all[Forward].address+"/", "Slicer-Key: k"); code != 421 || h.Get(httpkey.HeaderRefused) != "forward" {
		t.Errorf("to an owner that is not there: %d %s", code, got)
	}
}

// TestMaxUnderWay: a server never has more requests at once than it may have, however many come.
// Others wait or are refused, the most critical last, and clients are told what there is no room for.
func TestMaxUnderWay(t *testing.T) {
	const most = 4
	const clients = most + mostWaiting + mostWaiting/2
	type reply struct {
		refused bool   // for want of room
		level   string // that it tells
		wrong   string
	}
	for name, serve := range map[string]func(t *testing.T, env *slicertest.Env, work func()) (send func(key string, c overload.Criticality) reply){
		"HTTP": func(t *testing.T, env *slicertest.Env, work func()) func(string, overload.Criticality) reply {
			upstream := startServer(t, func(http.ResponseWriter, *http.Request) { work() })
			a := start(t, env, "a", upstream.address, func(cfg *Config) { cfg.UnderWay = most })
			client := newClient(t)
			return func(key string, c overload.Criticality) reply {
				code, body, h := send(client, "http://"+a.address+"/", "Slicer-Key: "+key, "Slicer-Timeout: 60000", "Slicer-Criticality: "+c.String())
				r := reply{refused: code == http.StatusServiceUnavailable && h.Get(httpkey.HeaderOverloaded) != "", level: h.Get(httpkey.HeaderLevel)}
				if code != http.StatusOK && !r.refused {
					r.wrong = fmt.Sprint(code, " ", body)
				}
				return r
			}
		},
		"gRPC": func(t *testing.T, env *slicertest.Env, work func()) func(string, overload.Criticality) reply {
			upstream := startGreeter(t, "a")
			upstream.work = work
			a := start(t, env, "a", upstream.address, func(cfg *Config) { cfg.GRPC, cfg.UnderWay = true, most })
			conn, err := grpc.NewClient(a.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return func(key string, c overload.Criticality) (r reply) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var trailer metadata.MD
				err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "slicer-key", key, "slicer-criticality", c.String()), sayHello, wrapperspb.String("Ada"), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
				if v := trailer["slicer-level"]; len(v) > 0 {
					r.level = v[0]
				}
				if r.refused = status.Code(err) == codes.ResourceExhausted; err != nil && !r.refused {
					r.wrong = err.Error()
				}
				return r
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			env := slicertest.New(t)
			var underWay, served, refused, told, critical, lost atomic.Int64
			send := serve(t, env, func() {
				if n := underWay.Add(1); n > most {
					t.Errorf("%d requests are at a server that may have %d", n, most)
				}
				defer underWay.Add(-1)
				time.Sleep(10 * time.Millisecond)
				served.Add(1)
			})
			owners(t, env.Clerk(clerk.Config{Job: "web"}), "a")
			stop := waittest.Repeat(clients+1, func(n, _ int) {
				// Of many keys: one alone would be to blame, which no level says.
				key, criticality := fmt.Sprint(n), overload.Sheddable
				if n == clients {
					criticality = overload.CriticalPlus
				}
				r := send(key, criticality)
				switch {
				case r.wrong != "":
					t.Error(r.wrong)
				case n == clients && r.refused:
					lost.Add(1)
				case n == clients:
					critical.Add(1)
				case r.refused:
					refused.Add(1)
				}
				if r.refused {
					time.Sleep(25*time.Millisecond + rand.N(50*time.Millisecond))
				}
				if r.level != "" {
					told.Add(1)
				}
			})
			defer stop()
			eventually(t, "requests are refused, served and told of", func() bool {
				return refused.Load() > 300 && served.Load() > 300 && critical.Load() > 30 && told.Load() > 30
			})
			// Of slots none is refused (TestSlotsByCriticality), but if this process has had no time for
			// what it was sent at once, admission has refused some of all.
			if lost.Load() > critical.Load()/10 {
				t.Errorf("%d critical requests are refused and %d served, while others are served", lost.Load(), critical.Load())
			}
			t.Logf("%d served, %d of them critical, %d refused, %d of them critical", served.Load(), critical.Load(), refused.Load()+lost.Load(), lost.Load())
		})
	}
}

// TestMovedWhileWaiting: a request whose key moves to another task while it waits for room at the
// server does not reach that where only owners serve.
func TestMovedWhileWaiting(t *testing.T) {
	env := slicertest.New(t)
	inside, release := make(chan string, 2), make(chan struct{})
	upstream := startServer(t, func(_ http.ResponseWriter, r *http.Request) {
		inside <- r.URL.Path
		<-release
	})
	a := start(t, env, "a", upstream.address, func(cfg *Config) { cfg.UnderWay, cfg.Misrouted = 1, Refuse })
	start(t, env, "b", startServer(t, echo("b")).address, nil)
	owners(t, env.Clerk(clerk.Config{Job: "web"}), "a", "b")
	env.Assign("web", slicertest.Spread("a"))
	client := newClient(t)
	first, second := make(chan int, 1), make(chan int, 1)
	ask := func(path string, to chan int) {
		code, _, _ := send(client, "http://"+a.address+path, "Slicer-Key: k", "Slicer-Timeout: 600000")
		to <- code
	}
	go ask("/first", first)
	<-inside
	go ask("/second", second)
	eventually(t, "the second waits", func() bool {
		a.slots.mu.Lock()
		defer a.slots.mu.Unlock()
		return len(a.slots.waiting) == 1
	})
	env.Assign("web", slicertest.Spread("b"))
	eventually(t, "a has heard", func() bool { return !a.life.Load().slicelet.IsAffinitized("k") })
	close(release)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	if code := <-second; code != http.StatusMisdirectedRequest || len(inside) > 0 {
		t.Errorf("the second: %d, and %d more have reached the server", code, len(inside))
	}
}

// heldBack is a reader of a stream that takes nothing before it is released.
type heldBack struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (w heldBack) Write(b []byte) (int, error) {
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// TestTellsToTheEnd: streams end with what departs when a sidecar ends that has keys, also if
// their readers are behind.
func TestTellsToTheEnd(t *testing.T) {
	env := slicertest.New(t)
	a := start(t, env, "a", startServer(t, echo("a")).address, nil)
	owners(t, env.Clerk(clerk.Config{Job: "web"}), "a")
	streams := make([]heldBack, maxStreams)
	release := make(chan struct{})
	var wg sync.WaitGroup
	for i := range streams {
		streams[i] = heldBack{httptest.NewRecorder(), release}
		wg.Go(func() {
			here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, here), "GET", "http://localhost/ownership", nil)
			r.RemoteAddr = here.String()
			a.Ownership(streams[i], r)
		})
	}
	eventually(t, "all read", func() bool {
		a.tell.mu.Lock()
		defer a.tell.mu.Unlock()
		return len(a.tell.streams) == maxStreams
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing takes its keys
	if err := a.Drain(ctx, a.server); err == nil {
		t.Error("drained, and there is no other task")
	}
	close(release)
	wg.Wait()
	for i, w := range streams {
		lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		var last Change
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(last.Departed) != 1 {
			t.Errorf("stream %d ends with %q", i, lines[len(lines)-1])
		}
	}
}

// TestTells: a webhook and a stream are told which keys come and go. The webhook is called again
// until it takes a change, and a drain waits for it.
func TestTells(t *testing.T) {
	env := slicertest.New(t)
	var mu sync.Mutex
	var told []Change
	refuses := true
	upstream := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		var c Change
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if refuses = !refuses; !refuses {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		told = append(told, c)
	})
	a := start(t, env, "a", upstream.address, func(cfg *Config) { cfg.Webhook = "http://" + upstream.address + "/" })
	b := start(t, env, "b", startServer(t, echo("b")).address, nil)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	status := httptest.NewServer(http.HandlerFunc(b.Ownership))
	defer status.Close()
	client := newClient(t)
	resp, err := client.Get(status.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (c Change) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ends: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := next()
	if first.Generation == 0 { // the clerk knows, and the task does not yet
		first = next()
	}
	if !first.Fresh || first.Task != "b" || first.Job != "web" || len(first.Arrived) != 1 {
		t.Errorf("first: %+v", first)
	}
	if err := a.Drain(t.Context(), a.server); err != nil {
		t.Errorf("drain: %v", err)
	}
	if second := next(); second.Fresh || len(second.Arrived) != 1 || len(second.Arrived[0].From) != 1 || second.Arrived[0].From[0] != (Task{"a", a.address}) || second.Generation <= first.Generation {
		t.Errorf("second: %+v", second)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := len(told); n < 2 || !told[0].Fresh || len(told[n-1].Departed) == 0 || told[n-1].Departed[0].To[0].Name != "b" {
		t.Errorf("the webhook was told %+v", told)
	}
	cctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(cctx, "GET", "/ownership", nil)
	r.RemoteAddr = "10.1.1.1:1"
	w := httptest.NewRecorder()
	if b.Ownership(w, r); w.Code != http.StatusForbidden {
		t.Errorf("a stranger gets %d", w.Code)
	}
}
