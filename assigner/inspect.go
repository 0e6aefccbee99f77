package assigner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxDecisions is how many decisions of a round are shown: the largest jobs
// begin with a million.
const maxDecisions = 1000

// readable is a job that is known here and that the caller may read, else nil. A caller that
// is refused is then refused by find, at the cost of a look into the store: it would see by
// the time it takes whether there is such a job.
func readable(v adminService, c enforce.Caller, name string) *runner {
	r := v.a.lookup(name)
	if r == nil {
		return nil
	}
	if job, known := r.config(); !known || !v.mayRead(c, r.name, job.Config.Access) {
		return nil
	}
	return r
}

// InspectJob implements AdminService.
func (v adminService) InspectJob(ctx context.Context, m *slicerv1.InspectJobRequest) (*slicerv1.InspectJobResponse, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := v.caller(ctx)
	if r := readable(v, c, m.GetJob()); r != nil {
		if resp := r.inspect(); resp != nil {
			resp.Customers = r.customers(m)
			resp.Consistency = r.consistency(ctx)
			return resp, nil
		}
	}
	// It may be newer than what is known here, or the store has not answered yet.
	j, _, err := v.find(ctx, c, assignment.Read, m.GetJob())
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
	now := r.a.now()
	c := r.job.View(now)
	job, known, exists := c.Job()
	if !known || !exists {
		return nil
	}
	v := c.Convergence()
	out := &slicerv1.InspectJobResponse{
		Job: jobToProto(job), AssignerId: r.a.cfg.ID, Preferred: c.IsPreferred(), Holding: c.Holding(), Alarm: c.Alarm(),
		ConvergedGeneration: int64(v.Generation), Stragglers: slices.Clone(v.Stragglers), Clerks: v.Clerks, Slicelets: v.Slicelets,
		Distributors: uint32(c.Distributors()), Imbalance: c.Imbalance(),
	}
	if a := c.Stored(); a != nil {
		out.Generation = int64(a.Generation())
		out.GenerationUnixMs = a.Generation().Time().UnixMilli()
	}
	for _, t := range c.Tasks() {
		age := int64(-1) // it has not reported
		if t.Age >= 0 {
			age = t.Age.Milliseconds()
		}
		out.Tasks = append(out.Tasks, &slicerv1.TaskStatus{
			Task: wire.TaskToProto(t.Task), Load: t.Load, LastReportAgeMs: age, Connected: t.Connected,
			MisroutedRate: t.Misrouted, ShedRate: t.Shed, CpuUtilization: t.CPU,
			CpuCores: t.Cores, MemoryBytes: t.Memory,
			Standing: t.Standing, DampedMs: t.Damped.Milliseconds(), Warming: t.Warming, Level: r.job.Level(t.Task.Name),
		})
	}
	if err := c.Err(); err != nil {
		out.StoreError = err.Error()
	}
	if last := c.LastRound(); last.Why != "" {
		out.LastRound = roundToProto(last)
	}
	out.Floor = c.Floor()
	if orders := c.Overrides(); orders.Version > 0 {
		out.Overrides = store.OverridesToProto(orders)
	}
	out.VanishedMs = c.Vanished().Milliseconds()
	if out.Preferred {
		out.WantedTasks = uint32(c.WantedTasks())
		out.Progress = r.job.Progress(now)
	}
	return out
}

// customers is how those stand to their limits that are asked for.
func (r *runner) customers(m *slicerv1.InspectJobRequest) (out []*slicerv1.CustomerStatus) {
	if m.GetCustomers() == 0 && m.GetCustomer() == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.job.Limits(int(min(m.GetCustomers(), wire.MaxCustomers)), m.GetCustomer()) {
		x := &slicerv1.CustomerStatus{Limit: wire.LimitToProto(c.Name, c.Limit), Asked: c.Asked, Used: c.Used}
		for _, p := range c.Parts {
			x.Parts = append(x.Parts, &slicerv1.CustomerPart{Distributor: p.Distributor, Asked: p.Asked, Used: p.Used, Share: p.Share})
		}
		out = append(out, x)
	}
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

// stateWithin bounds how long the lease store is waited for.
const stateWithin = 2 * time.Second

// consistency is how the job's leases stand, nil when it is in affinity mode.
func (r *runner) consistency(ctx context.Context) *slicerv1.Consistency {
	r.mu.Lock()
	job, _, _ := r.viewLocked().Job()
	home, wanted, since, now := r.home, r.viewLocked().Target(), r.stepSince, r.a.now().Mono
	out := &slicerv1.Consistency{Leading: r.viewLocked().Token() != 0, StepMs: -1}
	changing := r.viewLocked().Changing()
	r.mu.Unlock()
	if job.Config.Mode != assignment.Consistent {
		return nil
	}
	session, err := home.leases.peek()
	if err == nil && session == nil {
		err = errors.New("no lease session is open here")
	}
	var st lease.State
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, stateWithin)
		defer cancel()
		st, err = session.State(ctx, r.name)
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Head = int64(st.Head)
	out.Guard, out.GuardOpen = int64(st.Guard.Generation), st.Guard.Open
	out.BridgeFrom, out.BridgeTo, out.BridgeOpen = int64(st.Bridge.From), int64(st.Bridge.To), st.Bridge.Open
	out.GuardReaders, out.BridgeReaders = uint32(st.GuardReaders), uint32(st.BridgeReaders)
	out.GuardOnly, out.BridgeOnly = notAcross(st)
	if s := lease.Next(st, wanted); s.Kind != lease.Idle {
		out.Step = s.Kind.String()
		if changing {
			out.StepMs = (now - since).Milliseconds()
		}
	}
	return out
}

// notAcross counts the readers that the change under way has yet to bring across: onto
// the bridge until the guard is at its end, and from then on onto the guard. A reader that
// holds one of the two is across where the change does not need it to hold both, as
// when there is no bridge.
func notAcross(st lease.State) (guard, bridge uint32) {
	switch {
	case st.Bridge == (lease.Bridge{}):
		return 0, 0
	case st.Guard.Generation == st.Bridge.To:
		return 0, uint32(st.BridgeOnly)
	}
	return uint32(st.GuardOnly), 0
}
