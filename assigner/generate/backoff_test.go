package generate

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/store"
)

// A store that can be read and not written, as an etcd without space, is tried less and
// less often, and the failures are counted as long as none succeeds.
func TestWritesFailWhileReadsSucceed(t *testing.T) {
	b := newBraked(t, 1)
	delete(b.tasks, "t4") // a death is to be written at once
	noSpace := errors.Join(store.ErrUnavailable, errors.New("no space"))
	writes, most := 0, int64(0)
	fail := func(d time.Duration) {
		for end := b.at + d; b.at < end; {
			b.at += 10 * time.Millisecond
			if b.at%time.Second == 0 {
				b.beat(false)
			}
			for range 20 {
				action, _ := b.core.Next(b.now())
				switch a := action.(type) {
				case Load:
					b.core.Loaded(b.now(), Loaded{Exists: true, Job: b.job, StoreID: 7, Assignment: b.stored})
					continue
				case *Plan:
					b.core.Planned(b.now(), a.Run())
					continue
				case Write:
					writes++
					b.core.Written(b.now(), noSpace)
					continue
				}
				break
			}
			for _, l := range b.core.Outputs().Logs {
				if l.Level == slog.LevelInfo && l.Message == "store works again" {
					t.Fatalf("after %s the store is said to work again, and nothing was written", b.at)
				}
				for i := 0; i+1 < len(l.Attrs); i += 2 {
					if n, ok := l.Attrs[i+1].(int); ok && l.Attrs[i] == "failures" {
						most = max(most, int64(n))
					}
				}
			}
		}
	}
	fail(time.Minute)
	if writes < 5 || writes > 30 {
		t.Errorf("%d writes in a minute of failures, want 5 to 30", writes)
	}
	if most < int64(writes) {
		t.Errorf("failures=%d after %d writes in a row that failed", most, writes)
	}
	if b.core.View(b.now()).Err() == nil {
		t.Error("the core has no error while it cannot write")
	}
	writes = 0
	b.pass(10 * time.Second)
	if b.core.View(b.now()).Err() != nil {
		t.Errorf("the store can be written again, and the error is still %v", b.core.View(b.now()).Err())
	}
	fail(time.Second)
	if writes > 8 {
		t.Errorf("%d writes in the first second of failures", writes)
	}
}
