package hotkey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
)

const (
	hotRate, otherRate, besideRate = 500, 75, 12 // requests a second
	deadline                       = 400 * time.Millisecond
	warmUp, measured               = 5 * time.Second, 12 * time.Second
)

// send sends a request for a key.
type send func(ctx context.Context, key string) error

// result is what became of the requests.
type result struct{ hot, hotServed, others, othersServed, beside, besideServed, attempts int64 }

func percent(served, all int64) float64 { return 100 * float64(served) / float64(max(all, 1)) }

// load sends requests at both rates, whatever becomes of them, and counts some time later.
func (f *fleet) load(hot bool, before time.Duration, s send) (r result) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var measuring atomic.Bool
	flow := func(rate int, key func(i int) string, all, served *int64) {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			count := measuring.Load()
			if count {
				atomic.AddInt64(all, 1)
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				defer cancel()
				if s(ctx, key(i)) == nil && count {
					atomic.AddInt64(served, 1)
				}
			})
		}
	}
	wg.Go(func() {
		flow(otherRate, func(i int) string { return f.others[i%len(f.others)] }, &r.others, &r.othersServed)
	})
	wg.Go(func() {
		flow(besideRate, func(i int) string { return f.beside[i%len(f.beside)] }, &r.beside, &r.besideServed)
	})
	if hot {
		wg.Go(func() { flow(hotRate, func(int) string { return f.hot }, &r.hot, &r.hotServed) })
	}
	time.Sleep(before)
	attempts := f.attempts.Load()
	measuring.Store(true)
	time.Sleep(measured)
	measuring.Store(false)
	r.attempts = f.attempts.Load() - attempts
	close(stop)
	wg.Wait()
	return r
}

// BenchmarkHotKey: one key asks for ten times what its server can do, and has one owner. Its
// server goes on answering nearly what it can, others lose nothing, and keys that share it
// little, whether its handlers queue without bound, shed, or shed dearly; and a request is sent
// 1.10 times at most.
//
//	go test ./test/bench/hotkey -run '^$' -bench 'HotKey$' -benchtime 1x
func BenchmarkHotKey(b *testing.B) {
	// Nothing is rebalanced: this is about the seconds before that.
	f := newFleet(b, assignment.JobConfig{MaxReplicas: 1, Balance: assignment.BalanceConfig{Interval: time.Hour}})
	for _, way := range []struct {
		name string
		make func(b *testing.B, f *fleet) send
	}{
		{"clerk.Do", do},
		{"clerkgrpc", viaGRPC},
		{"clerkhttp", viaHTTP},
		{"slicerproxy", func(b *testing.B, f *fleet) send { return viaProxy(b, f) }},
		{"slicerproxy --response-timeout", func(b *testing.B, f *fleet) send { return viaProxy(b, f, "--response-timeout=150ms") }},
	} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				s := way.make(b, f)
				for _, kind := range []handlers{queue, shed, shedDearly} {
					f.kind.Store(int32(kind))
					for _, hot := range []bool{false, true} {
						if !hot && kind != queue {
							continue
						}
						r := f.load(hot, warmUp, s)
						others, beside := percent(r.othersServed, r.others), percent(r.besideServed, r.beside)
						rate := float64(r.hotServed) / measured.Seconds()
						attempts := float64(r.attempts) / float64(r.hot+r.others+r.beside)
						b.Logf("handlers that %-11s  hot key %-5t  others served %5.1f %%  beside it %5.1f %%  hot served %4.1f/s  attempts a request %.2f",
							kind, hot, others, beside, rate, attempts)
						if others < 99 || beside < 80 || hot && rate+float64(r.besideServed)/measured.Seconds() < 45 || attempts > 1.105 {
							b.Error("want 99 % of others, 80 % beside it, 45/s of the hot key and those beside it, 1.10 attempts")
						}
					}
				}
			}
		})
	}
}

// BenchmarkHotKeyMoved is the same with a balancer, from the 30th second on, when nothing is beside
// the hot key any more.
//
//	go test ./test/bench/hotkey -run '^$' -bench HotKeyMoved -benchtime 1x
func BenchmarkHotKeyMoved(b *testing.B) {
	for b.Loop() {
		f := newFleet(b, assignment.JobConfig{MaxReplicas: 1})
		s := viaGRPC(b, f)
		r := f.load(true, 30*time.Second, s)
		others, beside, rate := percent(r.othersServed, r.others), percent(r.besideServed, r.beside), float64(r.hotServed)/measured.Seconds()
		b.Logf("others served %5.1f %%  what was beside it %5.1f %%  hot served %4.1f/s", others, beside, rate)
		if others < 99 || beside < 99 || rate < 45 {
			b.Error("want 99 % of others and of what was beside it, 45/s of the hot key")
		}
	}
}

func newClerk(b *testing.B, f *fleet) *clerk.Clerk {
	ck, err := clerk.New(clerk.Config{Job: job, Distributors: f.plane.Addrs()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ck.Close() })
	if err := ck.Ready(context.Background()); err != nil {
		b.Fatal(err)
	}
	return ck
}

// get asks a server, or the proxy, for a key.
func get(ctx context.Context, rt http.RoundTripper, address, key string, set func(*http.Request)) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Key", key)
	if set != nil {
		set(req)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if full, ok := clerkhttp.OverloadedOf(resp); ok {
		return full
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	}
	return errors.New(resp.Status)
}

func httpTransport(b *testing.B) *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: 256}
	b.Cleanup(t.CloseIdleConnections)
	return t
}

// do takes a server that has no room for one that has not taken the request.
func do(b *testing.B, f *fleet) send {
	ck, rt := newClerk(b, f), httpTransport(b)
	return func(ctx context.Context, key string) error {
		return ck.Do(ctx, key, func(ctx context.Context, t assignment.Task) error {
			return get(ctx, rt, t.Address, key, func(r *http.Request) { clerkhttp.SetHeaders(r, key) })
		})
	}
}

func viaGRPC(b *testing.B, f *fleet) send {
	conn, err := grpc.NewClient("slicer:///"+job, append(clerkgrpc.DialOptions(clerkgrpc.Config{Shared: newClerk(b, f)}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	stub := hello.NewGreeterClient(conn)
	return func(ctx context.Context, key string) error {
		_, err := stub.SayHello(clerk.WithIdempotent(clerk.WithKey(ctx, key)), wrapperspb.String(key))
		return err
	}
}

func viaHTTP(b *testing.B, f *fleet) send {
	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: newClerk(b, f)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { t.Close() })
	return func(ctx context.Context, key string) error { return get(clerk.WithKey(ctx, key), t, "job", key, nil) }
}

// viaProxy is the program, in a process of its own.
func viaProxy(b *testing.B, f *fleet, flags ...string) send {
	dir := b.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "github.com/slicer-project/slicer/cmd/slicerproxy").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  - {job: "+job+", key: {header: X-Key}, timeout: "+deadline.String()+"}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "slicerproxy"), append(flags, "--config="+rules, "--distributors="+strings.Join(f.plane.Addrs(), ","),
		"--listen=127.0.0.1:0", "--http=", "--log-format=json")...)
	log, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, log)
		_ = cmd.Wait()
	})
	var m struct{ Msg, Listen string }
	for lines := json.NewDecoder(log); m.Msg != "serving"; {
		if err := lines.Decode(&m); err != nil {
			b.Fatal(fmt.Errorf("slicerproxy's log: %w", err))
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	rt := httpTransport(b)
	return func(ctx context.Context, key string) error { return get(ctx, rt, m.Listen, key, nil) }
}
