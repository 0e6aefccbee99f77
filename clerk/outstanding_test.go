package clerk

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// TestMaxOutstanding: each owner gets as many requests as it may have, others fail without
// being sent, and when some have ended as many are sent again.
func TestMaxOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		server := n.Start(distributor)
		defer server.Stop()
		cfg := config(n)
		cfg.MaxOutstanding, cfg.Criticality = 3, overload.SheddablePlus
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var place assignment.Placement
		place.Add(0, 0, 1)
		a, err := assignment.Successor(nil, header(1), tasks, place)
		if err != nil {
			t.Fatal(err)
		}
		server.Put(a)
		synctest.Wait()
		var mu sync.Mutex
		sent, failed := map[string]int{}, 0
		all := func(asks int, err error) {
			clear(sent)
			failed = 0
			var wg sync.WaitGroup
			for range asks {
				wg.Go(func() {
					got := c.Do(t.Context(), "k", func(_ context.Context, task assignment.Task) error {
						mu.Lock()
						sent[task.Name]++
						mu.Unlock()
						time.Sleep(time.Second)
						return err
					})
					if full, ok := errors.AsType[Overloaded](got); ok && !full.Elsewhere {
						mu.Lock()
						failed++
						mu.Unlock()
					} else if got != err {
						t.Error(got)
					}
				})
				synctest.Wait() // or two may choose the same last place
			}
			wg.Wait()
		}
		for _, err := range []error{nil, errOther} {
			if all(20, err); len(sent) != 2 || sent[tasks[0].Name] != 3 || sent[tasks[1].Name] != 3 || failed != 14 {
				t.Errorf("of 20 were sent %v, and %d failed", sent, failed)
			}
		}
		// What is not sent for another reason is not under way.
		for range 10 {
			throttle := c.Throttle(tasks[0].Name)
			throttle.Hear(overload.Level{Below: 500, Pause: time.Minute})
			if _, err := throttle.Send(0, ""); err == nil {
				t.Error("it was sent")
			}
			throttle.Hear(overload.Level{})
		}
		for range 5 {
			if all(6, nil); failed != 0 {
				t.Errorf("%d of 6 failed", failed)
			}
		}
		if n := c.throttles.held[byOutstanding][overload.SheddablePlus].Load(); n != 28 || c.Throttling() {
			t.Errorf("%d are counted as not sent", n)
		}
	})
}
