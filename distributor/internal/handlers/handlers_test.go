package handlers

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Close waits for handlers and what they have started, and lets in none after.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		if err := g.Enter(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		g.Go(func() {
			<-g.Done()
			time.Sleep(2 * time.Second)
		})
		go func() {
			<-g.Done()
			time.Sleep(time.Second)
			g.Leave()
		}()
		g.Close()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("closed after %s, while something ran for 2s", took)
		}
		if err := g.Enter(); status.Code(err) != codes.Unavailable {
			t.Errorf("entered after Close: %v", err)
		}
		if g.Life().Err() == nil {
			t.Error("it lives after Close")
		}
	})
}

func TestFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // until the first message comes
		err   error         // in its place
		close time.Duration // when the group closes, 0: not
		code  codes.Code
	}{
		{name: "in time", after: time.Second},
		{name: "late", after: 6 * time.Second, code: codes.DeadlineExceeded},
		{name: "ended", after: time.Second, err: status.Error(codes.Canceled, "gone"), code: codes.Canceled},
		{name: "closing", after: 3 * time.Second, close: 2 * time.Second, code: codes.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New()
				if c.close > 0 {
					time.AfterFunc(c.close, g.Stop)
				}
				m, err := First(g, func() (string, error) {
					time.Sleep(c.after)
					return "hello", c.err
				}, 5*time.Second, "hello")
				if status.Code(err) != c.code || err == nil && m != "hello" {
					t.Errorf("%q, %v, want %s", m, err, c.code)
				}
				g.Close()
			})
		})
	}
}

func TestEndOf(t *testing.T) {
	refused := status.Error(codes.InvalidArgument, "no")
	for _, c := range []struct{ in, want error }{
		{io.EOF, nil}, {errors.New("broken pipe"), nil}, {refused, refused},
	} {
		if got := EndOf(c.in); got != c.want {
			t.Errorf("EndOf(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}
