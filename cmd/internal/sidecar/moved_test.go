package sidecar

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/slicertest"
)

func endsMoved(cfg *Config) { cfg.EndMoved = true }

// TestEndMoved: server-sent events and WebSockets of a server that knows nothing of Slicer end when
// their key moves to another task, and the client that asks again gets that task. Others go on, as
// do all where it is not asked for.
func TestEndMoved(t *testing.T) {
	for _, end := range []bool{true, false} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			env := slicertest.New(t)
			// events sends lines until the client is gone.
			events := func(name string) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					var to io.Writer = w
					flush := http.NewResponseController(w).Flush
					gone := r.Context().Done()
					if r.Header.Get("Upgrade") != "" {
						c, rw, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						defer c.Close()
						fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
						to, flush = rw, rw.Flush
						ended := make(chan struct{})
						gone = ended
						go func() {
							defer close(ended)
							_, _ = io.Copy(io.Discard, rw)
						}()
						defer func() { _ = c.Close(); <-ended }()
					}
					for {
						fmt.Fprintln(to, name)
						_ = flush()
						select {
						case <-time.After(5 * time.Millisecond):
						case <-gone:
							return
						}
					}
				}
			}
			change := endsMoved
			if !end {
				change = nil
			}
			start(t, env, "a", startServer(t, events("a")).address, change)
			start(t, env, "b", startServer(t, events("b")).address, change)
			c := env.Clerk(clerk.Config{Job: "web"})
			owners(t, c, "a", "b")
			env.Assign("web", slicertest.Spread("b"), slicertest.Key("moves", "a"), slicertest.Key("stays", "a"))
			client := routed(t, c)
			client.Timeout = 0
			open := func(key, upgrade string) *bufio.Reader {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				t.Cleanup(cancel)
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://web/?key="+key, nil)
				if r.Header.Set("Accept", "text/event-stream"); upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", upgrade)
				}
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				return bufio.NewReader(resp.Body)
			}
			line := func(r *bufio.Reader) string {
				t.Helper()
				s, err := r.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			stays := open("stays", "")
			moves := open("moves", "")
			socket := open("moves", "chat")
			for _, r := range []*bufio.Reader{stays, moves, socket} {
				if got := line(r); got != "a\n" {
					t.Fatalf("at first: %q", got)
				}
			}
			env.Assign("web", slicertest.Spread("b"), slicertest.Key("moves", "b"), slicertest.Key("stays", "a"))
			going := []*bufio.Reader{stays}
			if end {
				for _, r := range []*bufio.Reader{moves, socket} {
					if rest, _ := io.ReadAll(r); strings.Trim(string(rest), "a\n") != "" {
						t.Errorf("after the move: %q", rest)
					}
				}
				again := open("moves", "")
				if got := line(again); got != "b\n" {
					t.Errorf("asked again: %q", got)
				}
			} else {
				going = append(going, moves, socket)
			}
			for _, r := range going {
				for range 10 {
					if got := line(r); got != "a\n" {
						t.Errorf("after the move: %q", got)
					}
				}
			}
		})
	}
}

// TestEndMovedGRPC: a stream ends when its key moves, and the next one reaches the new owner.
func TestEndMovedGRPC(t *testing.T) {
	env := slicertest.New(t)
	change := func(cfg *Config) { cfg.GRPC, cfg.EndMoved = true, true }
	start(t, env, "a", startGreeter(t, "a").address, change)
	start(t, env, "b", startGreeter(t, "b").address, change)
	c := env.Clerk(clerk.Config{Job: "web"})
	owners(t, c, "a", "b")
	env.Assign("web", slicertest.Spread("b"), slicertest.Key("k", "a"))
	conn, err := grpc.NewClient("slicer:///web", append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: c}), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	talk := func() grpc.ClientStream {
		t.Helper()
		ctx, cancel := context.WithTimeout(clerk.WithKey(t.Context(), "k"), limit)
		t.Cleanup(cancel)
		s, err := conn.NewStream(ctx, &greeterService.Streams[0], "/helloworld.Greeter/Talk")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	say := func(s grpc.ClientStream) (string, error) {
		if err := s.SendMsg(wrapperspb.String("x")); err != nil && err != io.EOF {
			return "", err
		}
		out := new(wrapperspb.StringValue)
		err := s.RecvMsg(out)
		return out.Value[:min(1, len(out.Value))], err
	}
	s := talk()
	if got, err := say(s); got != "a" {
		t.Fatalf("at first: %q, %v", got, err)
	}
	env.Assign("web", slicertest.Spread("b"))
	if err := s.RecvMsg(new(wrapperspb.StringValue)); err == nil || s.Context().Err() == context.DeadlineExceeded {
		t.Errorf("after the move: %v", err)
	}
	if got, err := say(talk()); got != "b" {
		t.Errorf("asked again: %q, %v", got, err)
	}
}

// TestForwardTLS: a request for another task's key goes on to that in TLS, whose certificate counts.
func TestForwardTLS(t *testing.T) {
	env := slicertest.New(t)
	secured := httptest.NewUnstartedServer(nil)
	defer secured.Close()
	forward := func(roots *x509.CertPool) func(*Config) {
		return func(cfg *Config) {
			cfg.Misrouted = Forward
			cfg.TLS = func() *tls.Config { return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13} }
		}
	}
	b := start(t, env, "b", startServer(t, echo("b")).address, func(cfg *Config) {
		cfg.Slicelet.Address = secured.Listener.Addr().String()
	})
	secured.Config.Handler = b
	secured.StartTLS()
	known := x509.NewCertPool()
	known.AddCert(secured.Certificate())
	knows := start(t, env, "knows", startServer(t, echo("a")).address, forward(known))
	other := start(t, env, "other", startServer(t, echo("a")).address, forward(x509.NewCertPool()))
	owners(t, env.Clerk(clerk.Config{Job: "web"}), "b", "knows", "other")
	env.Assign("web", slicertest.Spread("b"))
	client := newClient(t)
	if code, got, _ := send(client, "http://"+knows.address+"/x", "Slicer-Key: k"); code != 200 || got[:1] != "b" {
		t.Errorf("to an owner that shows a certificate of the authority: %d %s", code, got)
	}
	if code, got, h := send(client, "http://"+other.address+"/x", "Slicer-Key: k"); code == 200 || got[:1] == "b" {
		t.Errorf("to one that shows another: %d %s %v", code, got, h[httpkey.HeaderRefused])
	}
}
