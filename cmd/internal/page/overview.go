package page

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	overviewPause = 2 * time.Second
	// inspectedAtOnce jobs are asked about at once, and inspectedInTurn in one reading: of the
	// others the overview has what it read before.
	inspectedAtOnce = 4
	inspectedInTurn = 500
	// maxListed is how many jobs are listed at most.
	maxListed = 10_000
	// sparkPoints is how many readings of imbalance a job's row has, as long as there are no
	// more jobs than sparkJobs.
	sparkPoints = 60
	sparkJobs   = 300
	// seededJobs is of how many jobs the history is read for older readings.
	seededJobs = 50
)

// overviewReader reads all jobs.
type overviewReader struct {
	p    *Page
	rows map[string]*jobRow
	next int // where the next reading goes on, if there are many jobs
}

func newOverviewReader(p *Page) *overviewReader {
	return &overviewReader{p: p, rows: make(map[string]*jobRow)}
}

func (r *overviewReader) pause() time.Duration { return overviewPause }

// jobRow is a job in the overview.
type jobRow struct {
	Name        string       `json:"name"`
	State       health.State `json:"state"`
	Why         string       `json:"why,omitempty"`
	Running     int          `json:"running"`
	Tasks       int          `json:"tasks"`
	Load        num          `json:"load"`
	Imbalance   num          `json:"imbalance"`
	Floor       num          `json:"floor"`
	Generation  int64        `json:"generation,omitempty"`
	Made        int64        `json:"made,omitempty"`
	Converged   bool         `json:"converged"`
	Subscribers uint32       `json:"subscribers"`
	Assigner    string       `json:"assigner,omitempty"`
	Store       string       `json:"store,omitempty"`
	Overrides   int          `json:"overrides"`
	Alarm       string       `json:"alarm,omitempty"`
	Spark       []num        `json:"spark,omitempty"`
}

// process is what the page says of where it comes from.
type process struct {
	Kind       string         `json:"kind"`
	ID         string         `json:"id"`
	Error      string         `json:"error,omitempty"`
	Unanswered []string       `json:"unanswered,omitempty"` // stores
	Assigners  []assignerView `json:"assigners"`
	// Distributors are those attached to the assigner that answers.
	Distributors []string `json:"distributors"`
}

type assignerView struct {
	ID      string   `json:"id"`
	Address string   `json:"address"`
	Zone    string   `json:"zone,omitempty"`
	Stores  []string `json:"stores,omitempty"`
	Jobs    *uint32  `json:"jobs,omitempty"` // nil for viewers that do not see all
}

func (r *overviewReader) read(ctx context.Context) []part {
	ctx = r.p.own(ctx)
	where := process{Kind: r.p.cfg.Kind, ID: r.p.cfg.ID, Assigners: []assignerView{}, Distributors: []string{}}
	names, chosen := r.list(ctx, &where)
	r.inspectAll(ctx, names, chosen)
	for name, row := range r.rows {
		if _, ok := names[name]; !ok {
			delete(r.rows, name)
		} else if chosen[name] != "" {
			row.Assigner = chosen[name]
		}
	}
	told := part{event: "process", data: encode(where)}
	for i := range where.Assigners { // how many jobs there are is for those that may read them
		where.Assigners[i].Jobs = nil
	}
	told.some = encode(where)
	return []part{told, r.jobs()}
}

// list finds the jobs and, as far as is known, which assigner decides for each.
func (r *overviewReader) list(ctx context.Context, where *process) (names map[string]bool, chosen map[string]string) {
	names, chosen = make(map[string]bool), make(map[string]string)
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	jobs, err := r.p.cfg.Admin.ListJobs(within, &slicerv1.ListJobsRequest{})
	if err != nil {
		where.Error = status.Convert(err).Message()
	}
	where.Unanswered = jobs.GetUnanswered()
	for _, j := range jobs.GetJobs() {
		names[j.GetConfig().GetName()] = true
	}
	if err != nil || len(jobs.GetUnanswered()) > 0 {
		for name := range r.rows { // that they are not told does not say that they are gone
			names[name] = true
		}
	}
	within, cancelAsk := context.WithTimeout(ctx, callWithin)
	defer cancelAsk()
	all, err := r.p.cfg.Admin.ListAssigners(within, &slicerv1.ListAssignersRequest{})
	if err != nil {
		return names, chosen
	}
	for _, a := range all.GetAssigners() {
		where.Assigners = append(where.Assigners, assignerView{a.GetId(), a.GetAddress(), a.GetZone(), a.GetStores(), &a.Jobs})
	}
	for _, d := range all.GetDistributors() {
		where.Distributors = append(where.Distributors, d.GetId())
	}
	for _, j := range all.GetJobs() {
		if j.GetStore() != "" { // it is a job's, and not only a name that was asked for
			names[j.GetJob()] = true
			chosen[j.GetJob()] = j.GetChosen()
		}
	}
	return names, chosen
}

// inspectAll asks about jobs, about others in the next reading if there are many.
func (r *overviewReader) inspectAll(ctx context.Context, names map[string]bool, chosen map[string]string) {
	sorted := slices.Sorted(maps.Keys(names))
	sorted = sorted[:min(len(sorted), maxListed)]
	turn := sorted
	if len(sorted) > inspectedInTurn {
		r.next %= len(sorted)
		turn = slices.Concat(sorted[r.next:], sorted[:r.next])[:inspectedInTurn]
		r.next += inspectedInTurn
	}
	rows := make([]*jobRow, len(turn))
	var asking sync.WaitGroup
	for first := range min(inspectedAtOnce, len(turn)) {
		asking.Go(func() {
			for i := first; i < len(turn) && ctx.Err() == nil; i += inspectedAtOnce {
				rows[i] = r.inspect(ctx, turn[i], i < seededJobs, len(sorted) <= sparkJobs)
			}
		})
	}
	asking.Wait()
	for i, row := range rows {
		if row != nil {
			r.rows[turn[i]] = row
		}
	}
	for _, name := range sorted {
		if r.rows[name] == nil {
			r.rows[name] = &jobRow{Name: name, State: health.Unknown, Why: "not read yet", Assigner: chosen[name]}
		}
	}
	r.p.keepCharts(names)
}

// inspect makes a row of what is known of a job.
func (r *overviewReader) inspect(ctx context.Context, name string, seed, spark bool) *jobRow {
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	m, err := r.p.cfg.Admin.InspectJob(within, &slicerv1.InspectJobRequest{Job: name})
	if err != nil {
		return &jobRow{Name: name, State: health.Unknown, Why: status.Convert(err).Message()}
	}
	now := time.Now()
	row := &jobRow{
		Name: name, Imbalance: num(m.GetImbalance()), Floor: num(m.GetFloor()), Generation: m.GetGeneration(), Made: m.GetGenerationUnixMs(),
		Converged: m.GetConvergedGeneration() >= m.GetGeneration(), Subscribers: m.GetClerks() + m.GetSlicelets(),
		Assigner: m.GetAssignerId(), Store: m.GetJob().GetConfig().GetStore(), Alarm: m.GetAlarm(), Overrides: countOverrides(m.GetOverrides()),
	}
	is := health.Of(m, false, now)
	row.State, row.Why, row.Tasks, row.Running, row.Load = is.State, whyOf(is), is.Tasks.Living(), is.Tasks.Serving, num(is.Load)
	c := r.p.chart(name)
	if seed && c.wantsSeed() {
		c.seed(r.p.pastOf(ctx, name))
	}
	if m.GetPreferred() {
		c.add(now, m.GetImbalance())
	}
	if spark {
		row.Spark = c.newest(sparkPoints)
	}
	return row
}

// pastOf is what the history of a job tells of its imbalance.
func (p *Page) pastOf(ctx context.Context, job string) []point {
	within, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	past, err := p.cfg.Admin.GetHistory(within, &slicerv1.GetHistoryRequest{Job: job, Limit: chartPoints})
	if err != nil {
		return nil
	}
	return pointsOf(past.GetEntries())
}

func pointsOf(entries []*slicerv1.HistoryEntry) (points []point) {
	for _, e := range entries {
		if e.GetAction() == "" && e.GetImbalance() > 0 {
			points = append(points, point{e.GetStamp().GetUnixMs(), num(e.GetImbalance())})
		}
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	return points
}

// jobs are the rows, the worst first.
func (r *overviewReader) jobs() part {
	sorted := slices.SortedFunc(maps.Values(r.rows), func(a, b *jobRow) int {
		return cmp.Or(health.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name))
	})
	p := part{event: "jobs", head: []byte(`{"jobs":[`), tail: []byte(`]}`), rows: make([]row, 0, len(sorted))}
	all := make(map[string]bool, len(sorted))
	for _, j := range sorted {
		all[j.Name] = true
		p.rows = append(p.rows, row{j.Name, encode(j)})
	}
	p.data = p.only(all)
	return p
}

func countOverrides(o *slicerv1.Overrides) int {
	n := len(o.GetPins()) + len(o.GetExcluded()) + len(o.GetDrains())
	if o.GetFreeze() != nil {
		n++
	}
	if o.GetRollback() != nil {
		n++
	}
	return n
}

// encode is for values that have no way to fail.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
