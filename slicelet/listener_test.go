package slicelet

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// busy is a listener that takes its time for each call.
type busy struct {
	takes time.Duration // 0 is until the context ends
	mu    sync.Mutex
	told  []string
}

func (l *busy) SlicesChanged(ctx context.Context, c Change) {
	if l.takes == 0 {
		<-ctx.Done()
	}
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, quarters(c.Departed))
}

func (l *busy) departed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.told, "")
}

// A drain ends only when the listener has been told of the last departure and has
// returned, also when it was busy with something else.
func TestDrainWaitsForTheListener(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := &busy{takes: 2 * time.Second}
			c := newCluster(t, nil)
			c.s.Listen(l)
			c.assign(1, assignment.TaskRunning, "mooo")
			time.Sleep(5 * time.Second)
			c.assign(2, assignment.TaskRunning, "moom")
			ended := c.startDrain(time.Minute)
			c.assign(3, assignment.TaskDraining, "oooo")
			c.converged(3)
			_, err := ended()
			if got := l.departed(); err != nil || got != "03" {
				t.Errorf("departures of %q told when the drain ended with %v, want 03", got, err)
			}
			c.stop()
		})
	}
}

// A drain that ends before the listener has returned says so, and Close tells what
// has departed all the same.
func TestCloseTellsWhatHasDeparted(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := &busy{takes: 5 * time.Second}
			c := newCluster(t, nil)
			c.s.Listen(l)
			c.assign(1, assignment.TaskRunning, "mmoo")
			ended := c.startDrain(4 * time.Second)
			c.assign(2, assignment.TaskDraining, "oooo")
			c.converged(2)
			if _, err := ended(); err == nil || !strings.Contains(err.Error(), "the listener") {
				t.Errorf("drained: %v", err)
			}
			c.stop()
			if got := l.departed(); got != "01" {
				t.Errorf("departures of %q told, want 01", got)
			}
		})
	}
}

// What Close itself ends is not told, whether or not the listener is busy.
func TestCloseIsNoDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, "a", "b")
		l := &busy{takes: time.Second}
		r.members[0].s.Listen(l)
		r.put("aabb")
		r.advance()
		r.put("abbb")
		r.advance()
		time.Sleep(500 * time.Millisecond)
		r.stop()
		if got := l.departed(); got != "1" {
			t.Errorf("departures of %q told, want 1", got)
		}
	})
}

// A listener that waits for what does not come holds Close up for ListenerGrace.
func TestCloseEndsTheListenersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &busy{}
		c := newCluster(t, nil)
		c.s.Listen(l)
		c.assign(1, assignment.TaskRunning, "mooo")
		began := time.Now()
		c.stop()
		if took := time.Since(began); took < ListenerGrace || took > ListenerGrace+2*time.Second {
			t.Errorf("Close took %s", took)
		}
		c.s.Listen(l) // does nothing
		if len(l.told) != 1 {
			t.Errorf("told %q", l.told)
		}
	})
}

// Listeners are told of what the task owned before, each at its own pace, and never
// before New has returned: New knows none.
func TestListenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := subscribertest.NewNetwork()
		c := &cluster{t: t, net: n, server: startServer(n)}
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
		var err error
		if c.s, err = New(config(n)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.me = c.server.Heard()[0].GetHello().GetTask()
		c.assign(1, assignment.TaskRunning, "mmoo")
		c.assign(2, assignment.TaskRunning, "mmom")
		early, late := &recorded{}, &recorded{}
		c.s.Listen(early)
		synctest.Wait()
		c.assign(3, assignment.TaskRunning, "omom")
		c.s.Listen(late)
		if got := strings.Join(early.take(), ", "); got != "+013 -, + -0" {
			t.Errorf("told %s", got)
		}
		if got := strings.Join(late.take(), ", "); got != "+13 -" {
			t.Errorf("told %s", got)
		}
		c.stop()
	})
}
