package xds

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/waittest"
	"github.com/slicer-project/slicer/test/kit/process"
)

var rate = flag.Int("xds.rate", 300, "calls a second of each client")

const hotKey = "user-7"

// inGo is grpc-go's.
type inGo struct {
	t    *testing.T
	cc   *grpc.ClientConn
	hot  atomic.Bool // half of the calls have one key
	done chan struct{}
	wg   sync.WaitGroup

	mu            sync.Mutex
	calls, failed int
	errors        []string
	answers       []answer
}

type answer struct{ key, task string }

func (g *inGo) soFar() (calls, failed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls, g.failed
}

// answeredBy waits until calls from now on with a key, or any if it is empty, have been
// answered by so many tasks.
func (g *inGo) answeredBy(key string, tasks int) {
	g.t.Helper()
	from, _ := g.soFar()
	process.Eventually(g.t, waittest.Patience, fmt.Sprintf("%q is answered by %d tasks", key, tasks), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		by := make(map[string]bool)
		for _, a := range g.answers[from:] {
			if key == "" || a.key == key {
				by[a.task] = true
			}
		}
		if len(by) < tasks {
			return fmt.Errorf("by %v", by)
		}
		return nil
	})
}

func (g *inGo) check(keys int) (tasks []string) {
	g.t.Helper()
	for i := range keys {
		task, err := call(g.t.Context(), g.cc, fmt.Sprintf("user-%d", i))
		if err != nil {
			g.t.Fatalf("go: %v", err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func (g *inGo) begin(rate int) {
	g.done = make(chan struct{})
	began := time.Now()
	g.wg.Go(func() {
		for sent := 0; ; {
			select {
			case <-g.done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			for ; sent < int(time.Since(began).Seconds()*float64(rate)); sent++ {
				key := fmt.Sprintf("user-%d", sent*7919%3000)
				if g.hot.Load() && sent%2 == 0 {
					key = hotKey
				}
				g.wg.Go(func() { g.one(key) })
			}
		}
	})
}

func (g *inGo) one(key string) {
	task, err := call(g.t.Context(), g.cc, key)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	g.answers = append(g.answers, answer{key, task})
	if err != nil {
		g.failed++
		g.errors = append(g.errors[:min(len(g.errors), 4)], err.Error())
	}
}

func (g *inGo) stop() (int, int, []string) {
	close(g.done)
	g.wg.Wait()
	return g.calls, g.failed, g.errors
}

// caller is a stock client in some language.
type caller interface {
	// check calls so many keys, and says which tasks answered.
	check(keys int) []string
	begin(rate int)
	// stop ends what begin began.
	stop() (calls, failed int, errors []string)
}

// agree waits until all keys of all clients are answered by owners: of the newest assignment,
// or of one that was the newest lagging ago or later.
func (f *fleet) agree(all map[string]caller, keys int) {
	f.t.Helper()
	for name, c := range all {
		process.Eventually(f.t, time.Minute, name, func() error {
			began := time.Now()
			tasks := c.check(keys)
			recent := f.since(began.Add(-lagging))
			var wrong []string
			for i, task := range tasks {
				key := fmt.Sprintf("user-%d", i)
				if !slices.ContainsFunc(recent, func(a *assignment.Assignment) bool { return owns(a, task, key) }) {
					wrong = append(wrong, fmt.Sprintf("%s (%s) by %s", key, assignment.KeyOf(key), task))
				}
			}
			if len(wrong) > 0 {
				return fmt.Errorf("%d of %d keys are answered elsewhere: %q", len(wrong), keys, wrong[:min(len(wrong), 5)])
			}
			return nil
		})
	}
}
