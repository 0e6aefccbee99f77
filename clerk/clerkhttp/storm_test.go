package clerkhttp

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/seedtest"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// TestStorm: keys move all the time, and servers are killed and started again, one
// at a time; no request fails, and all connections are accounted for.
func TestStorm(t *testing.T) {
	seed := seedtest.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		j := newTestJob(t, affinity, "abcd")
		tr := j.transport(func(c *Config) { c.Policy = policy.LeastLoaded })
		var clients sync.WaitGroup
		for c := range 8 {
			mine := rand.New(rand.NewPCG(seed, uint64(c)+2))
			clients.Go(func() {
				for range 250 {
					key := fmt.Sprint("key ", mine.IntN(1000))
					if mine.IntN(10) == 0 {
						key = "-"
					}
					if got, err := get(t, tr, key); err != nil || len(got) != 1 {
						t.Errorf("%s: %q, %v", key, got, err)
					}
					time.Sleep(time.Duration(mine.IntN(4)) * time.Millisecond)
				}
			})
		}
		done := make(chan struct{})
		go func() {
			clients.Wait()
			close(done)
		}()
		generation := assignment.Generation(1)
		dead := ""
		for over := false; !over; {
			switch rng.IntN(3) {
			case 0: // all stay in it, somewhere
				owners := []byte("abcd")
				rng.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
				generation++
				j.assign(generation, string(owners))
			case 1:
				if dead == "" {
					dead = string("abcd"[rng.IntN(4)])
					j.kill(dead)
				}
			case 2:
				if dead != "" {
					j.start(dead)
					dead = ""
				}
			}
			select {
			case <-done:
				over = true
			case <-time.After(time.Duration(rng.IntN(10)) * time.Millisecond):
			}
		}
		for _, b := range tr.snapshot.Load().backends {
			if n := b.outstanding.Load(); n != 0 {
				t.Errorf("%s has %d requests outstanding", b.name, n)
			}
		}
		var n uint64
		for i := range tr.tally.requests {
			n += tr.tally.requests[i].Load()
		}
		if n != 2000 || tr.tally.requests[unanswered].Load() > 0 {
			t.Errorf("%d requests counted, %d of them not answered", n, tr.tally.requests[unanswered].Load())
		}
		if tr.tally.retries[failedOnce].Load() == 0 {
			t.Error("nothing was sent again: the storm is a calm")
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		j.metric("slicer_clerk_connections{job=job} 0")
		j.stop()
	})
}
