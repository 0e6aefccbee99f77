package downstream

import (
	"time"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxAge bounds the age of a report: past it a report says nothing anyway.
const maxAge = 24 * time.Hour

// Reader makes out what one Distributor's messages say. It is not safe for concurrent use.
type Reader struct {
	From Session
	Name string            // the Distributor's
	room []generate.Report // for the reports of one message
	said []saidOf
}

// Rejected is a task's report that is malformed, or without a task what customers ask for.
type Rejected struct {
	Task string
	Err  error
}

// Read is what a message about a job says, which is good until the next call. Reports
// that are malformed are left out: one bad slicelet must not take the others along.
func (r *Reader) Read(now time.Duration, m *slicerv1.AttachRequest) (e Said, bad []Rejected) {
	e.From = r.From
	switch x := m.GetMessage().(type) {
	case *slicerv1.AttachRequest_Want:
		w := x.Want
		e.What = Want{
			Stop: w.GetStop(), Held: Mark{assignment.Generation(w.GetGeneration()), w.GetStoreId(), w.GetChecksum()},
			Newest:     generate.Held{Store: w.GetNewestReportedStoreId(), Generation: assignment.Generation(w.GetNewestReported())},
			Compressed: w.GetCompressed(),
		}
	case *slicerv1.AttachRequest_Reports:
		r.room, r.said = r.room[:0], r.said[:0]
		for _, t := range x.Reports.GetReports() {
			switch report, err := reportFromProto(t); {
			case err != nil:
				bad = append(bad, Rejected{assignment.Clip(t.GetTask().GetName(), assignment.MaxNameLen), err})
			case len(r.room) < assignment.MaxTasks:
				r.room, r.said = append(r.room, report), append(r.said, newSaidOf(t))
			}
		}
		e.What = Reports{Complete: x.Reports.GetComplete(), Reports: r.room, said: r.said}
	case *slicerv1.AttachRequest_Acks:
		a := x.Acks
		late := a.GetStragglers()
		e.What = Acks{progress: newAcked(r.Name, now, a), Acks: generate.Acks{
			Min: assignment.Generation(a.GetMinGeneration()), Empty: a.GetEmpty(),
			Stragglers: late[:min(len(late), wire.MaxStragglers)], Clerks: a.GetClerks(), Slicelets: a.GetSlicelets(),
		}}
	case *slicerv1.AttachRequest_Clients:
		e.What = Clients{Complete: x.Clients.GetComplete(), Clients: clientsFromProto(x.Clients.GetClients())}
	case *slicerv1.AttachRequest_CustomerUses:
		uses, err := usesFromProto(x.CustomerUses)
		if err != nil {
			bad = append(bad, Rejected{Err: err})
		}
		e.What = uses
	case *slicerv1.AttachRequest_WantBase:
		w := x.WantBase
		e.What = WantBase{Mark{assignment.Generation(w.GetGeneration()), w.GetStoreId(), w.GetChecksum()}, w.GetCompressed()}
	}
	return e, bad
}

// reportFromProto validates what comes from the network. A load that is
// malformed spoils the report: its task is not to be believed.
func reportFromProto(m *slicerv1.TaskReport) (r generate.Report, err error) {
	t, err := wire.TaskFromProto(m.GetTask())
	if err != nil {
		return r, err
	}
	r.Report = membership.Report{Task: t, Identity: m.GetIdentity(), State: t.State, Disconnected: m.GetDisconnected()}
	if r.Identity != "" && !access.Identity(r.Identity).Valid() {
		return r, &assignment.FieldError{Field: "identity", Value: assignment.Clip(r.Identity, 80), Allowed: "a SPIFFE id, a DNS name in lower case, anonymous, or none"}
	}
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

// clientsFromProto reads what comes from the network; clientindex.Table judges it.
func clientsFromProto(ms []*slicerv1.Client) []clientindex.Client {
	out := make([]clientindex.Client, 0, min(len(ms), clientindex.MaxClients))
	for _, m := range ms[:cap(out)] {
		c := clientindex.Client{ID: m.GetClientId(), Index: -1, Disconnected: m.GetDisconnected()}
		c.Age = time.Duration(min(max(m.GetAgeMs(), 0), time.Duration(1<<63-1).Milliseconds())) * time.Millisecond
		if m != nil && m.Index != nil {
			c.Index = int(m.GetIndex())
		}
		out = append(out, c)
	}
	return out
}
