package generate

import (
	"fmt"
	"math"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/loadbalance"
)

// write is the action that stores what was planned.
func (p *Planned) write(token lease.Token, keep int) Write {
	w := Write{Next: p.Next, Token: token, Overrides: p.overrides.Version, Fulfills: p.target != nil, Entry: p.entry, Keep: keep}
	if w.Overrides == 0 {
		w.Overrides = store.NoVersion
	}
	return w
}

// record is what the history is to say of a plan.
func (d *Planned) record(assigner string, r Round, failures []membership.Penalty) (*store.Entry, error) {
	e := &store.Entry{
		Order: d.overrides.Version, Generation: d.Next.Generation(), Previous: d.Next.Previous(), Assigner: assigner,
		Stamp:    store.Stamp{When: stampTime(r.At), Why: string(r.Why)},
		KeyChurn: finite(r.Stats.KeyChurn), LoadChurn: finite(r.Stats.LoadChurn),
		ImbalanceBefore: finite(r.Stats.ImbalanceBefore), ImbalanceAfter: finite(r.Stats.ImbalanceAfter),
	}
	for _, p := range failures {
		e.Penalties = append(e.Penalties, store.Penalty{Task: p.Task, Amount: finite(p.Amount), Damped: p.Damped})
	}
	if d.taskChanges != "" {
		e.Why += ": " + d.taskChanges
	}
	if d.target != nil {
		b := d.overrides.Rollback
		e.Identity, e.Who, e.Peer = b.Identity, b.Who, b.Peer
		e.Why = fmt.Sprintf("rollback to generation %d", b.Generation)
		if b.Why != "" {
			e.Why += ": " + b.Why
		}
	}
	e.Why = assignment.Clip(e.Why, store.MaxWhy)
	// Whole lists would be cut down anyway, and entries are to be quick.
	said := r.Decisions[:min(len(r.Decisions), maxEntryDecisions)]
	e.Decisions = make([]store.Decision, 0, len(said))
	for _, x := range said {
		e.Decisions = append(e.Decisions, decision(x))
	}
	e.LeftOut = len(r.Decisions) - len(e.Decisions)
	return e, e.Validate()
}

// maxEntryDecisions is more than an entry has room for.
const maxEntryDecisions = 1000

func decision(d loadbalance.Decision) store.Decision {
	s := d.Slice
	if s.Valid() != nil {
		s = assignment.Slice{}
	}
	return store.Decision{Kind: string(d.Kind), Reason: string(d.Reason), Slice: s, From: d.From, To: d.To,
		Benefit: finite(d.Benefit), KeyChurn: finite(d.KeyChurn), LoadChurn: finite(d.LoadChurn)}
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// stampTime is a time as the store keeps it: a clock that is far off is no reason
// to keep nothing.
func stampTime(t time.Time) time.Time {
	ms := min(max(t.UnixMilli(), 1), int64(assignment.MaxGeneration))
	return time.UnixMilli(ms).UTC()
}
