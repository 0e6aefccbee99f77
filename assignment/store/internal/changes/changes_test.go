package changes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

var errEnd = errors.New("end")

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var n Jobs
		add := func(names ...string) {
			var all []store.Change // at once, or the reader may find a part of them
			for i, name := range names {
				all = append(all, store.Change{Job: name, Generation: assignment.Generation(i)}, store.Change{Job: name, Generation: 7})
			}
			n.Add(all...)
		}
		type result struct {
			names []string
			err   error
		}
		results := make(chan result)
		next := func(ctx context.Context) {
			go func() {
				all, err := n.Next(ctx)
				for _, c := range all {
					if c.Generation != 7 {
						t.Errorf("%+v is not the newest", c)
					}
				}
				results <- result{all.Jobs(), err}
			}()
		}
		want := func(err error, names ...string) {
			t.Helper()
			r := <-results
			if !errors.Is(r.err, err) || len(names)+len(r.names) > 0 && cmp.Diff(names, r.names) != "" {
				t.Errorf("Next: %v, %v; want %v, %v", r.names, r.err, names, err)
			}
		}
		next(ctx)
		want(nil) // the first at once
		next(ctx)
		synctest.Wait()
		n.Add()
		synctest.Wait()
		add("b", "a")
		want(nil, "a", "b")
		for range 1000 {
			add("c")
			add("a", "c")
		}
		next(ctx)
		want(nil, "a", "c")
		next(ctx)
		synctest.Wait()
		cancel()
		want(context.Canceled)
		add("d")
		next(ctx)
		want(context.Canceled) // and nothing is lost
		next(t.Context())
		want(nil, "d")
		next(t.Context())
		synctest.Wait()
		n.End(errEnd)
		n.End(errors.New("another"))
		want(errEnd)
		add("e")
		next(t.Context())
		want(errEnd)
	})
}

func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Latest[int]
		ctx, cancel := context.WithCancel(t.Context())
		type result struct {
			view int
			err  error
		}
		results := make(chan result)
		next := func() { go func() { v, err := l.Next(ctx); results <- result{v, err} }() }
		want := func(view int, err error) {
			t.Helper()
			if r := <-results; r.view != view || !errors.Is(r.err, err) {
				t.Errorf("Next: %v, want %d, %v", r, view, err)
			}
		}
		next()
		synctest.Wait()
		l.Set(1)
		want(1, nil)
		l.Set(2)
		l.Set(3)
		next()
		want(3, nil)
		next()
		synctest.Wait()
		cancel()
		want(0, context.Canceled)
		l.End(errEnd)
		next()
		want(0, errEnd)
	})
}
