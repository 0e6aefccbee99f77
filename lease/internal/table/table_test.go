package table_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/internal/table"
)

// A session is over when its time is up, be it that Expire has not been called since.
func TestSessionIsOverWhenItsTimeIsUp(t *testing.T) {
	const ttl = 5 * time.Second
	b := table.New(0)
	reader, granted, err := b.Open(0, ttl, map[string]time.Duration{"job": ttl})
	if err != nil || granted != ttl {
		t.Fatalf("Open: %s, %v; want %s", granted, err, ttl)
	}
	writer := b.OpenWriter(0, ttl)
	calls := map[string]func(now time.Duration) error{
		"KeepAlive": func(now time.Duration) error { _, err := b.KeepAlive(now, reader); return err },
		"Join":      func(now time.Duration) error { return b.Join(now, reader, "other", ttl) },
		"Acquire": func(now time.Duration) error {
			_, _, err := b.Acquire(now, reader, "job", lease.GuardClaim(1))
			return err
		},
		"Release": func(now time.Duration) error {
			_, err := b.Release(now, reader, "job", lease.GuardClaim(1))
			return err
		},
		"Lead": func(now time.Duration) error { _, err := b.Lead(now, writer, "job"); return err },
	}
	for name, call := range calls {
		if err := call(ttl); !errors.Is(err, lease.ErrLost) {
			t.Errorf("%s when the time is up: %v", name, err)
		}
	}
	for name, call := range calls {
		if err := call(ttl - 1); err != nil {
			t.Errorf("%s just before: %v", name, err)
		}
	}
}

// A change is held up by a session for no longer than the job's lease time, however
// often the session is renewed.
func TestRenewalEndsWithWhatIsRecalled(t *testing.T) {
	const ttl = 5 * time.Second
	b := table.New(0)
	reader, _, err := b.Open(0, ttl, map[string]time.Duration{"job": ttl})
	if err != nil {
		t.Fatal(err)
	}
	guard := lease.Guard{Generation: 1, Open: true}
	b.Write(0, "job", lease.Records{Head: 1, Guard: guard})
	if _, ok, err := b.Acquire(0, reader, "job", lease.GuardClaim(1)); err != nil || !ok {
		t.Fatalf("Acquire: %t, %v", ok, err)
	}
	guard.Open = false
	const recalled = 2 * time.Second
	b.Write(recalled, "job", lease.Records{Head: 1, Guard: guard})
	for now := recalled; now < recalled+ttl; now += time.Second {
		if granted, err := b.KeepAlive(now, reader); err != nil || granted != recalled+ttl-now {
			t.Errorf("a renewal at %s grants %s, %v; want the rest of %s since %s", now, granted, err, ttl, recalled)
		}
	}
	if _, err := b.KeepAlive(recalled+ttl, reader); !errors.Is(err, lease.ErrLost) {
		t.Errorf("a renewal when the change was held up for %s: %v", ttl, err)
	}
}
