package page

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// historyPause is the least time between two readings of the history, which takes longer
// than the rest.
const historyPause = time.Second

// failedPause is the time between readings while a job cannot be read.
const failedPause = 3 * time.Second

// jobReader reads one job.
type jobReader struct {
	p    *Page
	name string

	a     *assignment.Assignment // as read last, nil if there is none
	owned map[string]owning      // by task, of a

	slices, tasks, loads, overrides, history part     // as read last
	told                                     [2]int64 // generation and number of overrides that history is of
	failed                                   bool     // the last reading
	readHistory                              time.Time
	historyTook                              time.Duration
}

func newJobReader(p *Page, name string) *jobReader { return &jobReader{p: p, name: name} }

func (r *jobReader) pause() time.Duration {
	if r.failed {
		return failedPause
	}
	return leastPause
}

// owning is how much of the keyspace a task owns, alone or with others.
type owning struct {
	slices int
	share  float64
}

// read implements reader. The state comes last, as it refers to the others.
func (r *jobReader) read(ctx context.Context) []part {
	ctx = r.p.own(ctx)
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := r.p.cfg.Admin.InspectJob(within, &slicerv1.InspectJobRequest{Job: r.name})
	now := time.Now()
	if r.failed = err != nil; r.failed {
		s := jobState{Job: r.name, At: now.UnixMilli(), State: health.Unknown, Why: status.Convert(err).Message()}
		return r.all(part{event: "state", data: encode(s)})
	}
	r.readSlices(ctx)
	r.readPast(ctx, now, m)
	c := r.p.chart(r.name)
	if m.GetPreferred() {
		c.add(now, m.GetImbalance())
	}
	r.tasks = part{event: "tasks", data: encode(newTaskColumns(m))}
	r.overrides = part{event: "overrides", data: encode(newOverrides(m.GetOverrides()))}
	return r.all(part{event: "chart", data: c.json()}, part{event: "state", data: encode(r.state(m, now))})
}

func (r *jobReader) all(more ...part) (parts []part) {
	for _, p := range append([]part{r.slices, r.tasks, r.overrides, r.history, r.loads}, more...) {
		if p.data != nil {
			parts = append(parts, p)
		}
	}
	return parts
}

// readSlices reads the slices and their load. What cannot be read stays as it was.
func (r *jobReader) readSlices(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	known := assignment.Generation(0)
	if r.a != nil {
		known = r.a.Generation()
	}
	m, err := r.p.cfg.Admin.InspectSlices(within, &slicerv1.InspectSlicesRequest{Job: r.name, KnownGeneration: int64(known)})
	switch {
	case err != nil:
		r.slices = part{event: "slices", data: encode(sliceColumns{Error: status.Convert(err).Message()})}
		r.a, r.owned, r.loads = nil, nil, part{}
		return
	case m.GetTooLarge():
		r.slices = part{event: "slices", data: encode(sliceColumns{Error: "there are too many slices to show"})}
		r.a, r.owned, r.loads = nil, nil, part{}
		return
	case m.GetGeneration() == 0:
		r.a, r.owned, r.slices, r.loads = nil, nil, part{event: "slices", data: encode(sliceColumns{})}, part{}
		return
	}
	if len(m.GetAssignment()) > 0 {
		a, err := wire.DecodeAssignment(m.GetAssignment())
		if err != nil {
			r.p.log.Error("the page's assignment does not decode", "job", r.name, "error", err)
			return
		}
		r.a, r.owned = a, count(a)
		r.slices = part{event: "slices", data: encode(newSliceColumns(a))}
	}
	if r.a != nil && int64(r.a.Generation()) == m.GetGeneration() {
		r.loads = part{event: "loads", data: encode(newLoads(r.a, m))}
	}
}

func count(a *assignment.Assignment) map[string]owning {
	by := make([]owning, a.NumTasks())
	for s, reps := range a.All() {
		for i := range reps.Len() {
			o := &by[reps.Position(i)]
			o.slices++
			o.share += s.Fraction()
		}
	}
	owned := make(map[string]owning, len(by))
	for i, t := range a.Tasks() {
		owned[t.Name] = by[i]
	}
	return owned
}

// readPast reads the history if something was done since it was read.
func (r *jobReader) readPast(ctx context.Context, now time.Time, m *slicerv1.InspectJobResponse) {
	of := [2]int64{m.GetGeneration(), m.GetOverrides().GetVersion()}
	if r.history.data != nil && (of == r.told || now.Sub(r.readHistory) < max(historyPause, readingCosts*r.historyTook)) {
		return
	}
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	past, err := r.p.cfg.Admin.GetHistory(within, &slicerv1.GetHistoryRequest{Job: r.name, Limit: maxRead})
	r.readHistory, r.historyTook = now, time.Since(now)
	if err != nil {
		return // it is told with the state that the store does not answer
	}
	r.told = of
	r.history = part{event: "history", data: encode(newHistory(past))}
	r.p.chart(r.name).seed(pointsOf(past.GetEntries()))
}

// jobState is what changes with each reading.
type jobState struct {
	Job     string       `json:"job"`
	Process string       `json:"process,omitempty"`
	At      int64        `json:"at"`
	State   health.State `json:"state"`
	Why     string       `json:"why,omitempty"`

	Mode        string `json:"mode,omitempty"`
	MinReplicas uint32 `json:"minReplicas,omitempty"`
	MaxReplicas uint32 `json:"maxReplicas,omitempty"`
	Metric      string `json:"metric,omitempty"`
	Store       string `json:"store,omitempty"`

	Generation int64  `json:"generation,omitempty"`
	Made       int64  `json:"made,omitempty"`
	Assigner   string `json:"assigner,omitempty"`
	Preferred  bool   `json:"preferred"`
	Holding    string `json:"holding,omitempty"`
	Alarm      string `json:"alarm,omitempty"`
	Leases     string `json:"leases,omitempty"`

	Imbalance num `json:"imbalance"`
	Floor     num `json:"floor"`
	Load      num `json:"load"`
	Mean      num `json:"mean"` // of a unit of capacity

	Progress *progress    `json:"progress,omitempty"`
	Round    *lastRound   `json:"round,omitempty"`
	Tasks    *taskNumbers `json:"tasks"`
}

// whyOf is what is wrong with a job first of all.
func whyOf(j *health.Job) string {
	if len(j.Problems) == 0 {
		return ""
	}
	return j.Problems[0]
}

// progress is how far the newest generation has come.
type progress struct {
	Converged    int64     `json:"converged"`
	Stragglers   []string  `json:"stragglers,omitempty"`
	Distributors uint32    `json:"distributors"`
	Clerks       uint32    `json:"clerks"`
	Slicelets    uint32    `json:"slicelets"`
	Holders      []holders `json:"holders,omitempty"`
	Spreads      []spread  `json:"spreads,omitempty"`
	Slow         []slow    `json:"slow,omitempty"`
	SlowTotal    uint32    `json:"slowTotal,omitempty"`
}

type holders struct {
	Role       string `json:"role"`
	Generation int64  `json:"generation"`
	Count      uint32 `json:"count"`
}

type spread struct {
	Role    string `json:"role"`
	Reached uint32 `json:"reached"`
	Waiting uint32 `json:"waiting"`
	P50     int64  `json:"p50"` // microseconds, -1 as long as it has not come so far
	P99     int64  `json:"p99"`
	Last    int64  `json:"last"`
}

type slow struct {
	Name        string `json:"name"`
	Generation  int64  `json:"generation"`
	Waiting     int64  `json:"waiting"` // milliseconds
	Distributor string `json:"distributor,omitempty"`
}

// lastRound is the newest round, which may have done nothing.
type lastRound struct {
	At         int64       `json:"at"`
	Generation int64       `json:"generation,omitempty"`
	Skipped    string      `json:"skipped,omitempty"`
	KeyChurn   num         `json:"keyChurn"`
	LoadChurn  num         `json:"loadChurn"`
	Kinds      []kindCount `json:"kinds,omitempty"`
}

const maxHolders = 8

func (r *jobReader) state(m *slicerv1.InspectJobResponse, now time.Time) jobState {
	cfg := m.GetJob().GetConfig()
	s := jobState{
		Job: r.name, Process: r.p.cfg.Kind + " " + r.p.cfg.ID, At: now.UnixMilli(),
		Mode: "affinity", MinReplicas: cfg.GetMinReplicas(), MaxReplicas: cfg.GetMaxReplicas(), Metric: cfg.GetLoadMetric(), Store: cfg.GetStore(),
		Generation: m.GetGeneration(), Made: m.GetGenerationUnixMs(), Assigner: m.GetAssignerId(), Preferred: m.GetPreferred(),
		Holding: m.GetHolding(), Alarm: m.GetAlarm(), Imbalance: num(m.GetImbalance()), Floor: num(m.GetFloor()),
		Progress: newProgress(m),
	}
	is := health.Of(m, false, now)
	s.State, s.Why, s.Load, s.Mean = is.State, whyOf(is), num(is.Load), num(is.Mean)
	if cfg.GetMode() == slicerv1.Mode_MODE_CONSISTENT {
		s.Mode, s.Leases = "consistent", leasesOf(m.GetConsistency())
	}
	if l := m.GetLastRound(); l != nil {
		s.Round = &lastRound{At: l.GetUnixMs(), Generation: l.GetGeneration(), Skipped: l.GetSkipped(), KeyChurn: num(l.GetKeyChurn()), LoadChurn: num(l.GetLoadChurn())}
		_, s.Round.Kinds = newDecisions(l.GetDecisions())
	}
	s.Tasks = r.taskNumbers(m, is)
	return s
}

func newProgress(m *slicerv1.InspectJobResponse) *progress {
	p := &progress{
		Converged: m.GetConvergedGeneration(), Stragglers: m.GetStragglers(), Distributors: m.GetDistributors(), Clerks: m.GetClerks(),
		Slicelets: m.GetSlicelets(), SlowTotal: m.GetProgress().GetSlowTotal(),
	}
	for _, h := range m.GetProgress().GetHolders() {
		if len(p.Holders) < maxHolders {
			p.Holders = append(p.Holders, holders{roleOf(h.GetRole()), h.GetGeneration(), h.GetSubscribers()})
		}
	}
	for _, x := range m.GetProgress().GetSpreads() {
		p.Spreads = append(p.Spreads, spread{roleOf(x.GetRole()), x.GetReached(), x.GetWaiting(), x.GetP50Us(), x.GetP99Us(), x.GetLastUs()})
	}
	for _, x := range m.GetProgress().GetSlow() {
		p.Slow = append(p.Slow, slow{x.GetName(), x.GetGeneration(), x.GetWaitingMs(), x.GetDistributorId()})
	}
	return p
}

func roleOf(r slicerv1.Role) string {
	if r == slicerv1.Role_ROLE_SLICELET {
		return "slicelets"
	}
	return "clerks"
}
