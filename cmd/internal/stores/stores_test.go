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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func TestParseStore(t *testing.T) {
	for flag, want := range map[string]struct{ name, url string }{
		"etcd://h1:2379,h2:2379/prefix": {"", "etcd://h1:2379,h2:2379/prefix"},
		"etcd://h1:2379":                {"", "etcd://h1:2379/slicer"},
		"eu=etcd://h1:2379/a":           {"eu", "etcd://h1:2379/a"},
	} {
		s, err := Parse(flag)
		if err != nil || s.Name != want.name || s.String() != want.url || s.files != nil {
			t.Errorf("%s: %q %s, %v; want %q %s", flag, s.Name, s, err, want.name, want.url)
		}
	}
	for flag, want := range map[string]string{
		"h1:2379":                             `--store: store: "h1:2379" is not allowed`,
		"http://h1:2379":                      `--store: store: "http://h1:2379" is not allowed`,
		"etcd://h1/slicer":                    `--store: store endpoint: "h1" is not allowed`,
		"=etcd://h1:2379":                     `--store: the name "" is not allowed`,
		"a/b=etcd://h1:2379":                  `--store: the name "a/b" is not allowed`,
		"pebble:///var/lib/slicer":            `--store: pebble:///var/lib/slicer is for one process alone`,
		"etcd://h1:2379?user=x":               `--store: "user" is not allowed after the ?`,
		"etcd://h1:2379?cert=x.pem":           `--store: cert and key go together`,
		"etcd://h1:2379?ca=/nowhere/ca.pem":   `--store: ca: stat /nowhere/ca.pem`,
		"etcd://h1:2379?cert=/no/c&key=/no/k": `--store: cert, key: stat /no/c`,
		"etcd://h1:2379?ca=%zz":               `--store: after the ?: invalid URL escape`,
	} {
		if _, err := Parse(flag); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
	for _, urls := range [][]string{nil, {"etcd://a:1", "eu=etcd://b:1"}, {"eu=etcd://a:1", "eu=etcd://b:1"}} {
		if _, err := ParseAll(urls); err == nil || !strings.HasPrefix(err.Error(), "--store") {
			t.Errorf("%q: %v", urls, err)
		}
	}
	if specs, err := ParseAll([]string{"main=etcd://a:1", "eu=etcd://b:1"}); err != nil || len(specs) != 2 {
		t.Errorf("two stores: %v, %v", specs, err)
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, err := run.NewStatus("", prometheus.NewRegistry(), nil)
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		try := func(ctx context.Context, open func(context.Context) (store.Backend, error)) (time.Duration, error) {
			begun := time.Now()
			_, err := await(ctx, "etcd://h:1/slicer", log, status, open)
			return time.Since(begun), err
		}
		silent := fmt.Errorf("dial: %w", store.ErrUnavailable)

		tries := 0
		took, err := try(t.Context(), func(context.Context) (store.Backend, error) {
			if tries++; tries < 4 {
				return nil, silent
			}
			return nil, nil
		})
		if err != nil || took != 3*pause {
			t.Errorf("a store that comes up late: %v after %s", err, took)
		}

		took, err = try(t.Context(), func(ctx context.Context) (store.Backend, error) { <-ctx.Done(); return nil, ctx.Err() })
		if err == nil || !strings.HasPrefix(err.Error(), "--store: no answer within 1m0s: ") || took > patience+tryFor+pause {
			t.Errorf("a store that never answers: %v after %s", err, took)
		}

		took, err = try(t.Context(), func(context.Context) (store.Backend, error) { return nil, store.ErrCorrupt })
		if !errors.Is(err, store.ErrCorrupt) || took != 0 {
			t.Errorf("a store that is no good: %v after %s", err, took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = try(ctx, func(context.Context) (store.Backend, error) { return nil, silent }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
	})
}
