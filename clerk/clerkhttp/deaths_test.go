package clerkhttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// answer is of a request that may have to wait.
type answer struct {
	from string
	err  error
}

// ask sends a request without a body and returns where its answer will come.
func ask(t *testing.T, tr *Transport, ctx context.Context, method, key string) chan answer {
	t.Helper()
	return askWith(t, tr, ctx, method, key, nil)
}

// askWith sends one with a body.
func askWith(t *testing.T, tr *Transport, ctx context.Context, method, key string, body io.Reader) chan answer {
	t.Helper()
	req, err := http.NewRequestWithContext(clerk.WithKey(ctx, key), method, "http://profiles", body)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan answer, 1)
	go func() {
		from, err := do(t, tr, req)
		got <- answer{from, err}
	}()
	synctest.Wait()
	return got
}

// moves reports whether an answer of b comes at once when a is said to be dead.
func (j *testJob) moves(got chan answer) bool {
	j.t.Helper()
	began := time.Now()
	j.assign(2, "bbbb")
	synctest.Wait()
	select {
	case x := <-got:
		if x.from != "b" || x.err != nil {
			j.t.Errorf("served by %q, %v", x.from, x.err)
		}
		return time.Since(began) == 0
	default:
		return false
	}
}

// TestDeathOnUsedConnection: of requests on connections that others have used those end with the task
// that may be carried out twice, whatever was on the connection before. The task is not dialled again.
func TestDeathOnUsedConnection(t *testing.T) {
	for _, methods := range [][2]string{{"GET", "GET"}, {"POST", "GET"}, {"GET", "POST"}, {"POST", "POST"}} {
		synctest.Test(t, func(t *testing.T) {
			j := newTestJob(t, affinity, "abab")
			tr := j.transport(nil)
			if got := <-ask(t, tr, t.Context(), methods[0], keyIn(0, 4)); got.from != "a" || got.err != nil {
				t.Fatalf("served by %q, %v", got.from, got.err)
			}
			still := make(chan struct{})
			j.task("a").answers(func(http.ResponseWriter, *http.Request) { <-still })
			got := ask(t, tr, t.Context(), methods[1], keyIn(0, 4))
			if moved := j.moves(got); moved != (methods[1] == "GET") {
				t.Errorf("%v: moved: %v", methods, moved)
			}
			if n := j.task("a").dials; n != 1 {
				t.Errorf("%v: the dead task was dialled %d times", methods, n)
			}
			close(still)
			if methods[1] == "POST" {
				if got := <-got; got.from != "" || got.err != nil {
					t.Errorf("%v: a POST was answered %q, %v", methods, got.from, got.err)
				}
			}
			j.stop(tr)
		})
	}
}

// TestDeathOfBody: so do requests with a body that can be had again, while it is being written or after.
func TestDeathOfBody(t *testing.T) {
	for _, size := range []int{10, 10 << 20} {
		synctest.Test(t, func(t *testing.T) {
			j := newTestJob(t, affinity, "abab")
			tr := j.transport(nil)
			if got := <-ask(t, tr, t.Context(), "GET", keyIn(0, 4)); got.from != "a" || got.err != nil {
				t.Fatalf("served by %q, %v", got.from, got.err)
			}
			still, body := make(chan struct{}), strings.Repeat("x", size)
			j.task("a").answers(func(http.ResponseWriter, *http.Request) { <-still })
			if !j.moves(askWith(t, tr, t.Context(), "GET", keyIn(0, 4), strings.NewReader(body))) {
				t.Errorf("one of %d bytes waits for a task that is dead", size)
			}
			if bodies := j.task("b").bodies; len(bodies) != 1 || bodies[0] != body {
				t.Errorf("the next owner got %d bodies, want one of %d bytes", len(bodies), size)
			}
			close(still)
			time.Sleep(time.Second) // so long a server waits that has not read all
			j.stop(tr)
		})
	}
}

// TestDeathWhileConnecting: a request to a task that is said to be dead meanwhile does not wait until it
// is known that the task cannot be connected to; nothing has been sent, so that any may go on.
func TestDeathWhileConnecting(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		synctest.Test(t, func(t *testing.T) {
			j := newTestJob(t, affinity, "abab")
			tr := j.transport(func(c *Config) {
				c.Base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr != address("a") {
						return j.dial(ctx, network, addr)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
			})
			if !j.moves(ask(t, tr, t.Context(), method, keyIn(0, 4))) {
				t.Errorf("a %s waits for a task that is dead", method)
			}
			j.stop(tr)
		})
	}
}

// TestDeathOfAnswered: a connection on which an answer has just begun is not closed by a death of a moment
// before, which has found that a request waited there.
func TestDeathOfAnswered(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := &conn{Conn: ours, pool: &pool{flights: new(flight.Group)}}
	defer ours.Close()
	c.flight = flight.Of(c.die)
	c.wait()
	go func() { _, _ = theirs.Write([]byte("HTTP")) }()
	if n, err := c.Read(make([]byte, 4)); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	c.die(flight.ErrDead)
	go func() { _, _ = theirs.Write([]byte("/1.1")) }()
	if n, err := c.Read(make([]byte, 4)); n != 4 || err != nil {
		t.Error(n, err)
	}
}

// TestDeathOfTraced: a request's own trace is told of its connections.
func TestDeathOfTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newTestJob(t, affinity, "abab")
		tr := j.transport(nil)
		still, connections := make(chan struct{}), 0
		j.task("a").answers(func(http.ResponseWriter, *http.Request) { <-still })
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connections++ }})
		if !j.moves(ask(t, tr, ctx, "GET", keyIn(0, 4))) {
			t.Error("it waits for a task that is dead")
		}
		if connections != 2 || waiting.GotConn == nil || waiting.GotFirstResponseByte != nil {
			t.Errorf("the trace was told of %d connections", connections)
		}
		close(still)
		j.stop(tr)
	})
}
