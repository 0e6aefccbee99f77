package downstream

import (
	"testing"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// What counts of a task that two Distributors speak of is what it said last: that it has room by
// way of one that it has left, in a report that was made before, says nothing.
func TestConditionOfTheLaterReport(t *testing.T) {
	var c conditions
	say := func(now time.Duration, of Session, age time.Duration, level uint32) {
		c.report(now, of, false, []saidOf{newSaidOf(&slicerv1.TaskReport{
			Task:   &slicerv1.Task{Name: "t", Incarnation: 1},
			Report: &slicerv1.Report{AgeMs: age.Milliseconds(), Level: level},
		})})
	}
	told := func(now time.Duration, want uint32) {
		t.Helper()
		got := uint32(0)
		for _, x := range c.worst(now) {
			got = x.GetLevel()
		}
		if got != want {
			t.Errorf("at %s it is told to refuse below %d, want %d", now, got, want)
		}
	}
	say(10*time.Second, 1, 0, 100)
	told(10*time.Second, 100)
	say(11*time.Second, 2, 0, 300)
	told(11*time.Second, 300)
	say(11*time.Second, 1, 2*time.Second, 0)
	told(11*time.Second, 300)
	say(11*time.Second, 1, 2*time.Second, 100)
	told(11*time.Second, 300)
	say(12*time.Second, 1, 0, 0)
	told(12*time.Second, 0)
	say(13*time.Second, 1, time.Hour, 300)
	told(13*time.Second, 0)
}
