package stores

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
)

// fake is a store that knows one job.
type fake struct {
	backend // what is not asked for here panics
	failed  chan struct{}
	closed  bool
}

func (f *fake) ID() uint64              { return 7 }
func (f *fake) Failed() <-chan struct{} { return f.failed }
func (f *fake) Err() error              { return errors.New("it was wiped") }
func (f *fake) Close() error            { f.closed = true; return nil }

func (f *fake) GetJob(_ context.Context, name string) (store.Job, error) {
	if name != "job" {
		return store.Job{}, store.ErrNotFound
	}
	return store.Job{Version: 3}, nil
}

// A store that is down when the process starts is opened when it answers.
func TestLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(time.Minute)
		f := &fake{failed: make(chan struct{})}
		l := openLazily("eu", "etcd://h:1/slicer", slog.New(slog.DiscardHandler), func(ctx context.Context) (backend, error) {
			if time.Now().Before(up) {
				<-ctx.Done()
				return nil, fmt.Errorf("dial: %w", ctx.Err())
			}
			return f, nil
		})
		refused := func(when string) {
			t.Helper()
			_, err := l.GetJob(t.Context(), "job")
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "store eu") {
				t.Errorf("%s: %v", when, err)
			}
			if _, err := l.Watch(t.Context()); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: watch: %v", when, err)
			}
			if l.ID() != 0 || l.Err() != nil {
				t.Errorf("%s: id %d, %v", when, l.ID(), l.Err())
			}
		}
		refused("at once")
		time.Sleep(30 * time.Second)
		refused("after several attempts")
		time.Sleep(time.Minute)
		synctest.Wait()
		if j, err := l.GetJob(t.Context(), "job"); err != nil || j.Version != 3 || l.ID() != 7 {
			t.Errorf("when it is up: version %d, %v, id %d", j.Version, err, l.ID())
		}
		select {
		case <-l.Failed():
			t.Error("it has not failed yet")
		default:
		}
		close(f.failed)
		synctest.Wait()
		select {
		case <-l.Failed():
		default:
			t.Error("it has failed, and says nothing of it")
		}
		if err := l.Close(); err != nil || !f.closed || l.Err() == nil {
			t.Errorf("close: %v, closed %v, %v", err, f.closed, l.Err())
		}
	})
}

// One that never answers is closed all the same.
func TestLazyCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLazily("eu", "etcd://h:1/slicer", slog.New(slog.DiscardHandler), func(ctx context.Context) (backend, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		time.Sleep(time.Hour)
		began := time.Now()
		if err := l.Close(); err != nil || time.Since(began) > 0 {
			t.Errorf("close: %v after %s", err, time.Since(began))
		}
	})
}
