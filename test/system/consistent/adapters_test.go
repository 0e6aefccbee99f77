package consistent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

// front is the gRPC and HTTP servers of a job's tasks, on loopback. The first task's
// handlers wait, each when it has begun, until release is closed.
type front struct {
	begun   chan struct{}
	release chan struct{}

	grpc, http map[string]string // where the servers are, by the task's address
}

func newFront(t *testing.T, j *job, unchecked bool) *front {
	t.Helper()
	f := &front{begun: make(chan struct{}, 100), release: make(chan struct{}), grpc: map[string]string{}, http: map[string]string{}}
	for i, p := range j.procs {
		name := fmt.Sprint("task-", i)
		lis := listen(t)
		g := grpc.NewServer(sliceletgrpc.ServerOptions(p.s, sliceletgrpc.Config{UncheckedAnswers: unchecked})...)
		hello.RegisterGreeterServer(g, greeter{f: f, name: name})
		h, err := slicelethttp.Handler(p.s, f.handler(name), slicelethttp.Config{UncheckedAnswers: unchecked})
		if err != nil {
			t.Fatal(err)
		}
		web := &http.Server{Handler: h}
		weblis := listen(t)
		f.grpc[j.tasks[i].Address], f.http[j.tasks[i].Address] = lis.Addr().String(), weblis.Addr().String()
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Serve(lis) })
		wg.Go(func() { _ = web.Serve(weblis) })
		t.Cleanup(func() { g.Stop(); web.Close(); wg.Wait() })
	}
	return f
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func (f *front) wait(name string) {
	if name == "task-0" {
		f.begun <- struct{}{}
		<-f.release
	}
}

type greeter struct {
	f    *front
	name string
}

func (g greeter) SayHello(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	g.f.wait(g.name)
	return wrapperspb.String(g.name), nil
}

func (g greeter) SayHellos(_ *wrapperspb.StringValue, s grpc.ServerStreamingServer[wrapperspb.StringValue]) error {
	if err := s.Send(wrapperspb.String("before")); err != nil {
		return err
	}
	g.f.wait(g.name)
	_ = s.Send(wrapperspb.String(g.name))
	return nil
}

func (f *front) handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Made-By", name)
		switch r.URL.Path {
		case "/flushed":
			fmt.Fprint(w, "before")
			w.(http.Flusher).Flush()
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		}
		f.wait(name)
		fmt.Fprint(w, name)
	})
}

// dialer connects to where a task's server really is.
func dialer(where map[string]string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", where[address])
	}
}

// clients are a gRPC and an HTTP client of the job.
func (f *front) clients(t *testing.T, n *subscribertest.Network) (hello.GreeterClient, *clerkhttp.Transport) {
	t.Helper()
	ck, err := clerk.New(clerk.Config{Job: "job", Distributors: []string{distributor}, DialOptions: n.DialOptions()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	conn, err := grpc.NewClient("slicer:///job", append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dialer(f.grpc)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	web, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: ck, Base: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dialer(f.http)(ctx, address) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { web.Close() })
	return hello.NewGreeterClient(conn), web
}

// asked is what became of a request: the text of the answer so far, the server that is
// said to have made it, and how it ended.
type asked struct {
	text, by string
	err      error
}

func (a asked) lost() bool {
	var l clerk.Lost
	_, ok := clerk.LostFromStatus(a.err)
	return ok || errors.As(a.err, &l)
}

func unary(ctx context.Context, stub hello.GreeterClient) asked {
	answer, err := stub.SayHello(ctx, wrapperspb.String(""))
	return asked{text: answer.GetValue(), err: err}
}

func streamed(ctx context.Context, stub hello.GreeterClient) (a asked) {
	s, err := stub.SayHellos(ctx, wrapperspb.String(""))
	for err == nil {
		var m *wrapperspb.StringValue
		m, err = s.Recv()
		a.text += m.GetValue()
	}
	if !errors.Is(err, io.EOF) {
		a.err = err
	}
	return a
}

func web(ctx context.Context, rt http.RoundTripper, method, path string) asked {
	req, err := http.NewRequestWithContext(ctx, method, "http://job"+path, http.NoBody)
	if err != nil {
		return asked{err: err}
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return asked{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if lost, ok := clerkhttp.LostOf(resp); ok && err == nil {
		err = lost
	}
	if resp.Header.Get(httpkey.HeaderRefused) != "" {
		err = errors.New("refused")
	}
	return asked{string(body), resp.Header.Get("X-Made-By"), err}
}

// TestAnswersAreHeldBack: a task that loses a key while handlers work for it, because
// the key moves or because its lease lapses, lets none of their answers out. A request
// that may be carried out twice is answered by the next owner.
func TestAnswersAreHeldBack(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"moves", "lapses", "lapses, unchecked"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			st := stores["served"](t)
			ttl := 10 * time.Second // from which a busy machine needs some
			if how == "moves" {
				ttl = lease.MaxTTL
			}
			j := start(t, st, ttl)
			if how == "moves" {
				defer j.stop()
			} else {
				defer j.abandon()
			}
			f := newFront(t, j, how == "lapses, unchecked")
			stub, rt := f.clients(t, j.net)
			j.change()
			ctx, cancel := context.WithTimeout(clerk.WithKey(t.Context(), j.keys[0]), patience)
			defer cancel()
			marked := clerk.WithIdempotent(ctx)
			requests := map[string]func() asked{
				"unary":   func() asked { return unary(ctx, stub) },
				"stream":  func() asked { return streamed(ctx, stub) },
				"POST":    func() asked { return web(ctx, rt, "POST", "/") },
				"flushed": func() asked { return web(ctx, rt, "POST", "/flushed") },
				"large":   func() asked { return web(ctx, rt, "POST", "/large") },
			}
			if how == "moves" {
				requests["marked unary"] = func() asked { return unary(marked, stub) }
				requests["GET"] = func() asked { return web(ctx, rt, "GET", "/") }
				requests["marked POST"] = func() asked { return web(marked, rt, "POST", "/") }
			}
			var mu sync.Mutex
			got := map[string]asked{}
			var wg sync.WaitGroup
			for what, ask := range requests {
				wg.Go(func() {
					a := ask()
					mu.Lock()
					defer mu.Unlock()
					got[what] = a
				})
			}
			for range requests {
				select {
				case <-f.begun:
				case <-time.After(patience):
					t.Fatal("handlers do not begin")
				}
			}
			if how == "moves" {
				for p := range j.owners {
					j.owners[p] = 1
				}
				j.change()
			} else {
				st.kill()
				j.eventually("nothing is owned", j.procs[0].holdsNothing)
			}
			close(f.release)
			wg.Wait()
			for what, a := range got {
				text := a.text[:min(len(a.text), 30)]
				switch {
				case how == "lapses, unchecked":
					if a.err != nil || !strings.HasSuffix(a.text, "task-0") {
						t.Errorf("%s, unchecked: %q, %v", what, text, a.err)
					}
				case what == "marked unary", what == "GET", what == "marked POST":
					if a.err != nil || a.text != "task-1" {
						t.Errorf("%s: %q, %v; want the next owner's answer", what, text, a.err)
					}
				case strings.HasSuffix(a.text, "task-0"):
					t.Errorf("%s: the answer of a task that had lost the key: %q", what, text)
				case what == "unary", what == "POST":
					if !a.lost() || a.by != "" {
						t.Errorf("%s: %v by %q, want clerk.Lost and nothing of the handler's", what, a.err, a.by)
					}
				case what == "stream":
					if !a.lost() || !strings.HasPrefix("before", a.text) {
						t.Errorf("%s: %q, %v", what, text, a.err)
					}
				default: // cut off
					if a.err == nil || a.lost() {
						t.Errorf("%s: %q, %v; want that it is cut off", what, text, a.err)
					}
				}
			}
		})
	}
}
