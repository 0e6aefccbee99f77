package assigner

import (
	"context"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxDecisions is how many decisions of a round are shown: the largest jobs
// begin with a million.
const maxDecisions = 1000

// InspectJob implements AdminService.
func (v adminService) InspectJob(ctx context.Context, m *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if r := v.a.lookup(m.GetJob()); r != nil {
		if resp := r.inspect(); resp != nil {
			return resp, nil
		}
	}
	// It may be newer than what is known here, or the store has not answered yet.
	j, _, err := v.a.find(ctx, m.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	v.a.changed(j.Config.Name)
	return &slicerv1.InspectJobResponse{
		Job: jobToProto(j), AssignerId: v.a.cfg.ID, Holding: "this assigner has just learnt of the job",
		Distributors: uint32(len(v.a.sessions())),
	}, nil
}

// inspect is nil when there is no such job as far as is known.
func (r *runner) inspect() *slicerv1.InspectJobResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, now := r.core, r.a.now()
	job, known, exists := c.Job()
	if !known || !exists {
		return nil
	}
	v := c.Convergence()
	out := &slicerv1.InspectJobResponse{
		Job: jobToProto(job), AssignerId: r.a.cfg.ID, Preferred: c.IsPreferred(), Holding: c.Holding(),
		ConvergedGeneration: int64(v.Generation), Stragglers: v.Stragglers, Clerks: v.Clerks, Slicelets: v.Slicelets,
		Distributors: uint32(c.Distributors()), Imbalance: c.Imbalance(now),
	}
	if a := c.Stored(); a != nil {
		out.Generation = int64(a.Generation())
		out.GenerationUnixMs = a.Generation().Time().UnixMilli()
	}
	for _, t := range c.Tasks(now) {
		age := int64(-1) // it has not reported
		if t.Age >= 0 {
			age = t.Age.Milliseconds()
		}
		out.Tasks = append(out.Tasks, &slicerv1.TaskStatus{
			Task: wire.TaskToProto(t.Task), Load: t.Load, LastReportAgeMs: age, Connected: t.Connected,
			MisroutedRate: t.Misrouted, ShedRate: t.Shed, CpuUtilization: t.CPU,
		})
	}
	if last := c.LastRound(); last.Why != "" {
		out.LastRound = roundToProto(last)
	}
	out.Floor = c.Floor()
	return out
}

func roundToProto(r generate.Round) *slicerv1.Round {
	out := &slicerv1.Round{
		Generation: int64(r.Generation), UnixMs: r.At.UnixMilli(),
		KeyChurn: r.Stats.KeyChurn, LoadChurn: r.Stats.LoadChurn, Skipped: r.Skipped,
	}
	for _, d := range r.Decisions[:min(len(r.Decisions), maxDecisions)] {
		out.Decisions = append(out.Decisions, decisionToProto(d))
	}
	return out
}

func decisionToProto(d loadbalance.Decision) *slicerv1.Decision {
	return &slicerv1.Decision{
		Kind: string(d.Kind), Reason: string(d.Reason), Start: uint64(d.Slice.Start), End: uint64(d.Slice.End),
		From: d.From, To: d.To, Benefit: d.Benefit, KeyChurn: d.KeyChurn, LoadChurn: d.LoadChurn,
	}
}
