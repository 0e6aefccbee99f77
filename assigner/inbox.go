package assigner

import (
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxAge bounds the age of a report: past it a report says nothing anyway.
const maxAge = 24 * time.Hour

// reports takes in what a Distributor says of tasks. What is malformed is left
// out and counted: one bad slicelet must not take the others along.
func (s *session) reports(m *slicerv1.TaskReports) {
	if m.GetJob() == "" {
		return // a sign of life
	}
	in := s.interestIn(m.GetJob())
	if in == nil {
		return
	}
	rs := s.room[:0]
	for _, t := range m.GetReports() {
		r, err := reportFromProto(t)
		if err != nil {
			s.a.metrics.rejected.Inc()
			s.a.log.Warn("task report ignored", "job", m.GetJob(), "distributor", s.name, "task", assignment.Clip(t.GetTask().GetName(), assignment.MaxNameLen), "error", err)
			continue
		}
		if len(rs) < assignment.MaxTasks {
			rs = append(rs, r)
		}
	}
	in.runner.tell(func(c *generate.Core, now generate.Now) { c.Reports(now, s.id, m.GetComplete(), rs) })
	clear(rs)
	s.room = rs
}

// reportFromProto validates what comes from the network. A load that is
// malformed spoils the report: its task is not to be believed.
func reportFromProto(m *slicerv1.TaskReport) (r generate.Report, err error) {
	t, err := wire.TaskFromProto(m.GetTask())
	if err != nil {
		return r, err
	}
	r.Report = membership.Report{Task: t, State: t.State, Disconnected: m.GetDisconnected()}
	p := m.GetReport()
	if p == nil {
		return r, nil
	}
	r.Said, r.Sequence = true, p.GetSequence()
	r.Age = time.Duration(min(max(p.GetAgeMs(), 0), maxAge.Milliseconds())) * time.Millisecond
	if state, err := wire.StateFromProto(p.GetState()); err != nil {
		return r, err
	} else if state != assignment.TaskUnknown {
		r.State = state
	}
	if p.GetLoad() != nil {
		r.Load, err = wire.LoadFromProto(p.GetLoad())
	}
	return r, err
}
