package slicelethttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestTimeout: it is what context.WithDeadline makes, whether it is asked for Done or not, and when.
func TestTimeout(t *testing.T) {
	why := errors.New("the client has gone")
	type key struct{}
	passes := func() { // and what is due has happened
		time.Sleep(2 * time.Second)
		synctest.Wait()
	}
	for name, happens := range map[string]func(cancel func(error), end func()){
		"nothing":          func(func(error), func()) {},
		"the time":         func(func(error), func()) { passes() },
		"its parent's end": func(cancel func(error), _ func()) { cancel(why) },
		"its own":          func(_ func(error), end func()) { end() },
		"its own and time": func(_ func(error), end func()) { end(); passes() },
		"the time and end": func(cancel func(error), end func()) { passes(); end(); cancel(why) },
	} {
		for _, asked := range []string{"never", "before", "after"} {
			for _, parents := range []time.Duration{0, time.Millisecond, time.Hour} {
				synctest.Test(t, func(t *testing.T) {
					see := func(make func(parent context.Context, by time.Time) (context.Context, func())) (seen [9]any) {
						parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, name))
						if parents > 0 {
							timed, stop := context.WithTimeout(parent, parents)
							defer stop()
							parent = timed
						}
						began := time.Now()
						ctx, end := make(parent, began.Add(time.Second))
						by, _ := ctx.Deadline()
						var child context.Context
						if asked == "before" {
							c, stop := context.WithCancel(ctx)
							defer stop()
							child = c
						}
						seen[0], seen[1] = ctx.Err(), by.Sub(began)
						happens(cancel, end)
						synctest.Wait()
						seen[2], seen[3], seen[4] = ctx.Err(), context.Cause(ctx), ctx.Value(key{})
						if asked == "after" {
							c, stop := context.WithCancel(ctx)
							defer stop()
							child = c
						}
						if child != nil {
							synctest.Wait()
							seen[5], seen[6] = child.Err(), context.Cause(child)
						}
						end()
						synctest.Wait()
						seen[7] = ctx.Err() != nil
						select {
						case <-ctx.Done():
							seen[8] = "done"
						default:
						}
						return seen
					}
					want := see(func(parent context.Context, by time.Time) (context.Context, func()) {
						return context.WithDeadline(parent, by)
					})
					got := see(func(parent context.Context, by time.Time) (context.Context, func()) {
						c := &timeout{Context: parent, by: by}
						return c, c.end
					})
					if strings.Contains(name, " and ") && asked != "before" {
						// What came first is not known any more, if it has not been asked for.
						for _, s := range []*[9]any{&want, &got} {
							for i := 2; i < 7; i++ {
								if err, ok := s[i].(error); ok {
									s[i] = err != nil
								}
							}
						}
					}
					if got != want {
						t.Errorf("%s, Done asked for %s, parent ends after %s: %v, of package context %v", name, asked, parents, got, want)
					}
				})
			}
		}
	}
}

// TestHandlerTimesOut: a handler that waits for its context is told at the client's time.
func TestHandlerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, slicerv1.Mode_MODE_AFFINITY)
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "mo")
		var took time.Duration
		h, err := Handler(c.s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began := time.Now()
			<-r.Context().Done()
			if took = time.Since(began); !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
				t.Error(r.Context().Err())
			}
		}), Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := request(keyIn(0), "")
		r.Header.Set(httpkey.HeaderTimeout, "1500")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if took != 1500*time.Millisecond {
			t.Errorf("after %s", took)
		}
	})
}

// BenchmarkTimeout is what the context of a request costs whose handler does not wait for it, beside
// package context's.
func BenchmarkTimeout(b *testing.B) {
	for name, make := range map[string]func(context.Context) (context.Context, func()){
		"WithTimeout": func(parent context.Context) (context.Context, func()) {
			return context.WithTimeout(parent, time.Minute)
		},
		"timeout": func(parent context.Context) (context.Context, func()) {
			c := &timeout{Context: parent, by: time.Now().Add(time.Minute)}
			return c, c.end
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parent, cancel := context.WithCancel(context.Background())
				ctx, end := make(parent)
				if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
					b.Fatal("it has ended")
				}
				end()
				cancel()
			}
		})
	}
}
