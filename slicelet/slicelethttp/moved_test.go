package slicelethttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// rooms is servers of long requests and a client of theirs, in a bubble and without Slicer.
type rooms struct {
	*testing.T
	env    *slicertest.Env
	client *http.Client
	ended  chan error // the cause of the context of each request whose handler has returned
}

func newRooms(t *testing.T, cfg Config, handler func(task string, w http.ResponseWriter, r *http.Request)) *rooms {
	r := &rooms{T: t, env: slicertest.New(t), ended: make(chan error, 100)}
	for _, task := range []string{"a", "b"} {
		s := r.env.Slicelet(slicelet.Config{Job: "job", Task: task})
		h, err := Handler(s, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			defer func() { r.ended <- context.Cause(req.Context()) }()
			handler(task, w, req)
		}), cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.serve(task, h)
	}
	r.client = &http.Client{Transport: r.transport(r.env.Clerk(clerk.Config{Job: "job"}))}
	r.assign("a")
	return r
}

func (r *rooms) serve(at string, h http.Handler) {
	server, lis, done := &http.Server{Handler: h}, r.env.Listen(at), make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	r.Cleanup(func() { _ = server.Close(); <-done })
}

func (r *rooms) transport(c *clerk.Clerk) *clerkhttp.Transport {
	base := clerkhttp.DefaultBase()
	base.DialContext = r.env.DialContext
	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c, Base: base})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = t.Close() })
	return t
}

func (r *rooms) assign(task string) {
	r.env.Assign("job", slicertest.Key("ada", task))
	synctest.Wait()
}

// get sends a request for the key.
func (r *rooms) get(method string, body io.Reader) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(clerk.WithKey(r.Context(), "ada"), method, "http://job/", body)
	if err != nil {
		r.Fatal(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	return resp
}

func always(*http.Request) bool { return true }

func (r *rooms) cause() {
	r.Helper()
	if err := <-r.ended; !errors.Is(err, ErrMoved) {
		r.Errorf("the context of the request ended with %v", err)
	}
}

// events sends its task, and goes on until its context ends.
func events(task string, w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "data: %s\n\n", task)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
	fmt.Fprint(w, "what is not read")
}

// An answer that has begun is cut off, and the client finds the new owner.
func TestEndMovedCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: always}, events)
		resp := r.get("GET", nil)
		time.Sleep(time.Minute)
		r.env.Assign("job", slicertest.Key("bob", "b"))
		r.assign("b")
		moved := time.Now()
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if took := time.Since(moved); string(body) != "data: a\n\n" || err == nil || took > time.Second {
			t.Errorf("%q, %v after %s", body, err, took)
		}
		r.cause()
		resp = r.get("GET", nil)
		line, _ := bufio.NewReader(resp.Body).ReadString('\n')
		_ = resp.Body.Close()
		if line != "data: b\n" {
			t.Errorf("%q", line)
		}
	})
}

// A long poll of which no answer has begun is sent again, to the new owner.
func TestEndMovedAnswersPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: always}, func(task string, w http.ResponseWriter, r *http.Request) {
			if task == "a" {
				<-r.Context().Done()
				http.Error(w, "gave up", http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, task)
		})
		time.AfterFunc(time.Minute, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
		began := time.Now()
		resp := r.get("GET", nil)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if took := time.Since(began); string(body) != "b" || err != nil || took > time.Minute+time.Second {
			t.Errorf("%q, %v after %s", body, err, took)
		}
		r.cause()
		// What is not safe to send twice gets to know.
		r.assign("a")
		time.AfterFunc(time.Minute, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
		resp = r.get("POST", strings.NewReader("x"))
		_ = resp.Body.Close()
		if lost, ok := clerkhttp.LostOf(resp); !ok || lost.Task != "a" {
			t.Errorf("%s", resp.Status)
		}
	})
}

// A handler that waits for the client's bytes does not wait any longer.
func TestEndMovedUnblocksReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: always}, func(task string, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})
		out, in := io.Pipe()
		defer in.Close()
		time.AfterFunc(time.Minute, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
		began := time.Now()
		resp := r.get("POST", out)
		_ = resp.Body.Close()
		if _, ok := clerkhttp.LostOf(resp); !ok || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%s after %s", resp.Status, time.Since(began))
		}
	})
}

// A handler that heeds Moved ends as it likes; what is not said to be long goes on.
func TestMoved(t *testing.T) {
	for _, cfg := range []Config{{}, {EndMoved: always}, {EndMoved: always, MovedGrace: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRooms(t, cfg, func(task string, w http.ResponseWriter, r *http.Request) {
				<-Moved(r.Context())
				fmt.Fprint(w, "goodbye")
			})
			time.AfterFunc(time.Minute, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
			resp := r.get("GET", nil)
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != "goodbye" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: LongLived}, func(task string, w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			fmt.Fprint(w, task)
		})
		time.AfterFunc(time.Second, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
		resp := r.get("GET", nil)
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "a" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		if Moved(t.Context()) != nil {
			t.Error("moved without a key")
		}
	})
}

// What a client that is behind begins at the former owner ends soon as well.
func TestEndMovedOfClientsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRooms(t, Config{EndMoved: always}, events)
		r.client.Transport = r.transport(r.env.Clerk(clerk.Config{Job: "job", ClientID: "late"}))
		release := r.env.Hold("late")
		r.assign("b")
		began := time.Now()
		resp := r.get("GET", nil)
		_, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if took := time.Since(began); err == nil || took > time.Second {
			t.Errorf("%v after %s", err, took)
		}
		release()
	})
}

// socket is a WebSocket's server that sends a frame a second, in two writes.
func socket(task string, w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	gone := make(chan struct{})
	go func() { defer close(gone); _, _ = io.Copy(io.Discard, c) }()
	for {
		for _, part := range [][]byte{{0x82, 0x05, 'h'}, []byte("ello")} {
			if _, err := c.Write(part); err != nil {
				<-gone // the client answers, or the connection is closed
				return
			}
		}
		select {
		case <-gone:
			return
		case <-time.After(time.Second):
		}
	}
}

// A WebSocket gets a close frame between two others, directly and behind slicerproxy.
func TestEndMovedWebSocket(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRooms(t, Config{EndMoved: LongLived}, socket)
			at := "a"
			if proxied {
				at = "proxy"
				base := clerkhttp.DefaultBase()
				base.DialContext = r.env.DialContext
				proxy, err := clerkhttp.NewProxy(clerkhttp.ProxyConfig{
					Base:  base,
					Rules: clerkhttp.Rules{List: []clerkhttp.Rule{{Job: "job", Key: []httpkey.Source{httpkey.Header("X-User")}}}},
					Clerk: func(job string) (*clerk.Clerk, error) {
						return clerk.New(clerk.Config{Job: job, Distributors: r.env.Distributors(), DialOptions: r.env.DialOptions()})
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = proxy.Close() })
				r.serve(at, proxy)
			}
			c, err := r.env.DialContext(t.Context(), "tcp", slicertest.Address(at))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\n%s: ada\r\nX-User: ada\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", httpkey.HeaderKey)
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", resp, err)
			}
			time.AfterFunc(10*time.Second+time.Millisecond, func() { r.env.Assign("job", slicertest.Key("ada", "b")) })
			frame, began := []byte{0x82, 0x05, 'h', 'e', 'l', 'l', 'o'}, time.Now()
			for {
				head := make([]byte, 2)
				if _, err := io.ReadFull(in, head); err != nil {
					t.Fatal(err)
				}
				rest := make([]byte, head[1])
				if _, err := io.ReadFull(in, rest); err != nil {
					t.Fatal(err)
				}
				if head[0] == 0x88 {
					if code := int(rest[0])<<8 | int(rest[1]); code != 1012 {
						t.Errorf("closed with %d", code)
					}
					break
				}
				if got := append(head, rest...); !bytes.Equal(got, frame) {
					t.Fatalf("frame %x", got)
				}
			}
			if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("closed after %s", took)
			}
			// The client does not answer: it is cut off.
			if _, err := in.ReadByte(); err == nil || time.Since(began) > 11*time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	}
}

// Frames are followed however they are written.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		ends := map[int]bool{}
		all = append(all, "HTTP/1.1 101 Switching Protocols\r\nA: b\r\n\r\r\n\r\n"...)
		ends[len(all)] = true
		for range rapid.IntRange(0, 5).Draw(t, "frames") {
			n := rapid.SampledFrom([]int{0, 1, 125, 126, 300, 65535, 65536, 70000}).Draw(t, "length")
			mask := byte(rapid.SampledFrom([]int{0, 0x80}).Draw(t, "mask"))
			switch {
			case n < 126:
				all = append(all, 0x82, byte(n)|mask)
			case n < 65536:
				all = append(all, 0x82, 126|mask, byte(n>>8), byte(n))
			default:
				all = append(all, 0x82, 127|mask, 0, 0, 0, 0, 0, byte(n>>16), byte(n>>8), byte(n))
			}
			if mask != 0 {
				n += 4
			}
			all = append(all, bytes.Repeat([]byte("\r\n\r\n\x82")[:5], n/5+1)[:n]...)
			ends[len(all)] = true
		}
		var f frames
		for sent := 0; sent < len(all); {
			n := min(rapid.IntRange(1, 70000).Draw(t, "write"), len(all)-sent)
			if rapid.Bool().Draw(t, "little") {
				n = min(n, 1+n%7)
			}
			f.pass(all[sent : sent+n])
			if sent += n; f.between() != ends[sent] {
				t.Fatalf("after %d of %d bytes: between frames: %t", sent, len(all), f.between())
			}
		}
	})
}
