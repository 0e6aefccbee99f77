package slicelet

import (
	"math/rand/v2"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// report reports the task's state and load, in the interval that the job asks
// for, until the slicelet closes.
func (s *Slicelet) report() {
	sequence := firstReport(s.me.State).Sequence
	var level overload.Level // as it is told
	var customers *slicerv1.CustomerUse
	send := func(load *assignment.Load) {
		sequence++
		level = s.Admission().Level().Coarse(level)
		r := &slicerv1.Report{
			Sequence: sequence, State: wire.StateToProto(s.state()),
			Level: uint32(level.Below), PauseMs: uint32(level.Pause.Milliseconds()), Customers: customers,
		}
		if load != nil {
			r.Load = wire.LoadToProto(load)
		}
		s.sub.Report(r)
	}
	every, last := s.sub.State().Status.ReportInterval, time.Now()
	timer := time.NewTimer(jittered(every))
	defer timer.Stop()
	for {
		changed := s.sub.StateChanged()
		if d := s.sub.State().Status.ReportInterval; d != every {
			every = d
			timer.Reset(time.Until(last.Add(jittered(every))))
		}
		select {
		case <-changed:
		case <-timer.C:
			metric := s.sub.State().Status.LoadMetric
			s.timed.Store(metric == assignment.LoadCPU)
			last = time.Now()
			load := s.recorder.measure(metric, last)
			customers = s.customers(last)
			send(load)
			timer.Reset(jittered(every))
		case <-s.reportNow:
			// The state has changed. The load is that of the last whole window: a
			// short one would say little.
			load, _ := s.recorder.newest()
			send(load)
		case <-s.stop:
			return
		}
	}
}

// firstReport goes with the first hello: there is no load yet.
func firstReport(s assignment.TaskState) *slicerv1.Report {
	return &slicerv1.Report{Sequence: 1, State: wire.StateToProto(s)}
}

func (s *Slicelet) state() assignment.TaskState { return assignment.TaskState(s.stage.Load()) }

// Started says that the task is ready for requests (Config.Starting): it is given slices from
// now on. In a task that was not starting it does nothing.
func (s *Slicelet) Started() {
	if s.stage.CompareAndSwap(uint32(assignment.TaskStarting), uint32(assignment.TaskRunning)) {
		notify(s.reportNow)
	}
}

// jittered is an interval a tenth longer or shorter, lest all tasks report at the
// same moment.
func jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5) }
