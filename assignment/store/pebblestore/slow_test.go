package pebblestore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/slicer-project/slicer/assignment/store"
)

// TestSlowDisk: a call without a deadline ends after Config.Timeout on a disk that does not
// answer, and its outcome is unknown; one with a later deadline is told what became of it,
// however long that takes. Neither ends the store.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	var slow atomic.Pointer[chan struct{}]
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if c := slow.Load(); c != nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo || op.Kind == errorfs.OpFileFlush) {
			<-*c
		}
		return nil
	}))
	s, err := Open("store", Config{fs: fs, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(ctx context.Context, text string) error {
		return s.Leases().Put(ctx, map[string][]byte{"lease/job/a/head": []byte(text)})
	}
	goOn := make(chan struct{})
	slow.Store(&goOn)
	if err := put(t.Context(), "1"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a deadline: %v", err)
	}
	patient, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- put(patient, "2") }()
	select {
	case err := <-done:
		t.Errorf("with an hour: %v, before the disk has answered", err)
	case <-time.After(500 * time.Millisecond):
	}
	slow.Store(nil)
	close(goOn)
	if err := within(t, done); err != nil {
		t.Errorf("with an hour: %v", err)
	}
	// The machine itself may be slower than Config.Timeout.
	if err := put(patient, "3"); err != nil {
		t.Errorf("after it: %v", err)
	}
	if got, err := s.Leases().Load(patient); err != nil || string(got["lease/job/a/head"]) != "3" {
		t.Errorf("stored: %q, %v", got, err)
	}
}
