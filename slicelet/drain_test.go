package slicelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (c *cluster) converged(gen int64, stragglers ...string) {
	c.server.Say(&slicerv1.Status{
		TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ConvergedGeneration: gen, Stragglers: stragglers,
	})
	synctest.Wait()
}

// startDrain returns how the drain ended, and after how long, once it has.
func (c *cluster) startDrain(timeout time.Duration) (ended func() (time.Duration, error)) {
	type end struct {
		err  error
		took time.Duration
	}
	done := make(chan end, 1)
	began := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := c.s.Drain(ctx)
		done <- end{err, time.Since(began)}
	}()
	synctest.Wait()
	return func() (time.Duration, error) {
		e := <-done
		return e.took, e.err
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "mmoo")
		c.converged(1)
		ended := c.startDrain(time.Minute)
		rs := c.reports()
		if len(rs) == 0 || rs[len(rs)-1].State != slicerv1.TaskState_TASK_STATE_DRAINING {
			t.Error("not reported at once")
		}
		if !c.s.IsAffinitized(keyIn(0, 4)) {
			t.Error("nothing owned while draining")
		}
		time.Sleep(2 * time.Second)
		c.assign(2, assignment.TaskDraining, "oooo")
		time.Sleep(time.Second)
		c.converged(2)
		// Requests that are still on their way.
		for range 10 {
			c.s.Handle(keyIn(0, 4))
			time.Sleep(300 * time.Millisecond)
		}
		took, err := ended()
		if want := 2*time.Second + time.Second + 10*300*time.Millisecond; err != nil || took < want || took > want+time.Second {
			t.Errorf("drained in %s, want about %s: %v", took, want, err)
		}
	})
}

func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.assign(1, assignment.TaskRunning, "mmoo")
		_, err := c.startDrain(2 * time.Second)()
		if err == nil || strings.Contains(err.Error(), "no other task") {
			t.Errorf("another task is running: %v", err)
		}
		var de *DrainError
		if !errors.As(err, &de) || de.Slices != 2 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 slices") {
			t.Errorf("nobody moves the slices: %v", err)
		}
		self, bad := wire.TaskFromProto(c.me)
		if bad != nil {
			t.Fatal(bad)
		}
		c.last = subscribertest.Equal(t, c.last, assignment.Header{Job: "job", StoreID: 1, Generation: 2}, []assignment.Task{self}, 0, 0, 0, 0)
		c.server.Put(c.last)
		synctest.Wait()
		if _, err = c.startDrain(2 * time.Second)(); err == nil || !strings.Contains(err.Error(), "no other task of the job is running") {
			t.Errorf("no other task is left: %v", err)
		}
		c.assign(3, assignment.TaskDraining, "oooo")
		c.converged(1, "clerk front-7", "slicelet other")
		_, err = c.startDrain(2 * time.Second)()
		if !errors.As(err, &de) || !slices.Equal(de.Stragglers, []string{"clerk front-7", "slicelet other"}) || !strings.Contains(err.Error(), "front-7, slicelet other") {
			t.Errorf("stragglers: %v", err)
		}
		c.converged(3)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					c.s.Handle(keyIn(0, 4))
				}
			}
		}()
		if _, err = c.startDrain(2 * time.Second)(); !errors.As(err, &de) || !strings.Contains(err.Error(), "pause") {
			t.Errorf("requests keep coming: %v", err)
		}
		close(stop)
		ended := c.startDrain(time.Minute)
		c.stop()
		if _, err = ended(); !errors.Is(err, ErrClosed) {
			t.Errorf("closed meanwhile: %v", err)
		}
	})
}

// shownAs puts an assignment in which the slicelet owns all, and the other task is as
// said, or absent.
func (c *cluster) shownAs(gen assignment.Generation, state assignment.TaskState) {
	c.t.Helper()
	self, err := wire.TaskFromProto(c.me)
	if err != nil {
		c.t.Fatal(err)
	}
	tasks := []assignment.Task{self}
	if state != assignment.TaskUnknown {
		other := subscribertest.Task("other", 1)
		other.State = state
		tasks = append(tasks, other)
	}
	c.last = subscribertest.Equal(c.t, c.last, assignment.Header{Job: "job", StoreID: 1, Generation: gen}, tasks, 0, 0)
	c.server.Put(c.last)
	synctest.Wait()
}

// A task waits for others that could take its slices, and where there are none for
// loneTime.
func TestDrainOfALoneTask(t *testing.T) {
	const never = assignment.TaskUnknown // as the other task's state
	for _, x := range []struct {
		name  string
		other []assignment.TaskState // each for three seconds, the last for ever
		want  time.Duration          // 0 is that it waits on
	}{
		{"alone", []assignment.TaskState{never}, loneTime},
		{"with a dead one", []assignment.TaskState{assignment.TaskDead}, loneTime},
		{"with one that drains", []assignment.TaskState{assignment.TaskDraining}, loneTime},
		{"with another", []assignment.TaskState{assignment.TaskRunning}, 0},
		{"with one that starts", []assignment.TaskState{assignment.TaskStarting}, 0},
		{"joined", []assignment.TaskState{never, assignment.TaskRunning}, 0},
		{"joined for a while", []assignment.TaskState{never, assignment.TaskStarting, never}, 6*time.Second + loneTime},
		{"deserted", []assignment.TaskState{assignment.TaskRunning, assignment.TaskDead}, 3*time.Second + loneTime},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, nil)
				defer c.stop()
				c.shownAs(1, x.other[0])
				time.Sleep(time.Minute) // what was before the drain does not count
				const limit = 30 * time.Second
				ended := c.startDrain(limit)
				for i, state := range x.other[1:] {
					time.Sleep(3 * time.Second)
					c.shownAs(assignment.Generation(2+i), state)
				}
				took, err := ended()
				var de *DrainError
				if !errors.As(err, &de) || de.Slices != 2 {
					t.Fatalf("ended by %v", err)
				}
				if x.want == 0 {
					if took != limit || errors.Is(err, ErrAlone) {
						t.Errorf("ended after %s by %v, want it to wait on", took, err)
					}
				} else if !errors.Is(err, ErrAlone) || took < x.want || took > x.want+time.Second {
					t.Errorf("ended after %s by %v, want %s", took, err, x.want)
				}
				if !c.s.IsAffinitized(keyIn(0, 4)) {
					t.Error("it owns nothing, and is not closed yet")
				}
			})
		})
	}
}

// A task that owns nothing is drained when the assigner has had time to know.
func TestDrainOfAnIdleTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		defer c.stop()
		c.assign(1, assignment.TaskRunning, "oooo")
		c.converged(1)
		if took, err := c.startDrain(time.Minute)(); err != nil || took < drainGrace || took > drainGrace+time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestDrainWithSlicerDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.assign(1, assignment.TaskRunning, "mooo")
		c.server.Stop()
		_, err := c.startDrain(20 * time.Second)()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no distributor serves") {
			t.Errorf("%v", err)
		}
		if err := c.s.Close(); err != nil {
			t.Error(err)
		}
	})
}
