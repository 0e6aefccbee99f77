package page

import (
	"slices"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/cmd/internal/health"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxRead entries of the history are read; of these the newest maxEntries are shown and as
	// many orders, and of each maxShown decisions.
	maxRead    = 200
	maxEntries = 60
	maxShown   = 8
	// Kinds of decisions that give no keys to others, as package loadbalance calls them, which
	// a Distributor does not link.
	kindSplit = "split"
	kindMerge = "merge"
)

// entryView is one generation or one order of the history.
type entryView struct {
	At         int64          `json:"at"`
	Order      int64          `json:"order,omitempty"`
	Action     string         `json:"action,omitempty"` // empty for a generation
	Generation int64          `json:"generation,omitempty"`
	By         string         `json:"by,omitempty"`
	Why        string         `json:"why,omitempty"`
	Before     num            `json:"before,omitempty"` // imbalance
	After      num            `json:"after,omitempty"`
	KeyChurn   num            `json:"keyChurn,omitempty"`
	LoadChurn  num            `json:"loadChurn,omitempty"`
	Decisions  []decisionView `json:"decisions,omitempty"`
	Kinds      []kindCount    `json:"kinds,omitempty"`
	LeftOut    uint32         `json:"leftOut,omitempty"` // decisions that are not kept
}

type decisionView struct {
	Kind      string `json:"kind"`
	Reason    string `json:"reason"`
	Start     string `json:"start"`
	End       string `json:"end"`
	From      string `json:"from,omitempty"`
	To        string `json:"to,omitempty"`
	Benefit   num    `json:"benefit"`
	KeyChurn  num    `json:"keyChurn"`
	LoadChurn num    `json:"loadChurn"`
}

type historyView struct {
	Entries []entryView `json:"entries"` // the newest first
	LeftOut uint32      `json:"leftOut,omitempty"`
}

func newHistory(m *slicerv1.GetHistoryResponse) *historyView {
	v := &historyView{Entries: []entryView{}, LeftOut: m.GetLeftOut()}
	orders := 0
	for _, e := range slices.Backward(m.GetEntries()) {
		isOrder := e.GetAction() != ""
		if isOrder {
			orders++
		}
		if len(v.Entries)-orders < maxEntries && !isOrder || isOrder && orders <= maxEntries {
			v.Entries = append(v.Entries, newEntry(e))
		}
	}
	return v
}

func newEntry(e *slicerv1.HistoryEntry) entryView {
	s := e.GetStamp()
	v := entryView{
		At: s.GetUnixMs(), Order: e.GetOrder(), Action: e.GetAction(), Generation: e.GetGeneration(), Why: s.GetWhy(),
		Before: num(e.GetImbalance()), After: num(e.GetImbalanceAfter()), KeyChurn: num(e.GetKeyChurn()), LoadChurn: num(e.GetLoadChurn()),
	}
	if e.GetAction() != "" || s.GetWho() != "" || s.GetIdentity() != "" {
		v.By = health.By(s)
	} else {
		v.By = "assigner " + e.GetAssignerId()
	}
	v.Decisions, v.Kinds = newDecisions(e.GetDecisions())
	v.LeftOut = e.GetLeftOut()
	return v
}

// newDecisions shows some of them, those that give keys to others before those that only cut
// slices anew, and counts all by what they do.
func newDecisions(all []*slicerv1.Decision) (shown []decisionView, kinds []kindCount) {
	shown = make([]decisionView, 0, min(len(all), maxShown))
	for _, cuts := range []bool{false, true} {
		for _, d := range all {
			if k := d.GetKind(); (k == kindSplit || k == kindMerge) == cuts && len(shown) < maxShown {
				shown = append(shown, newDecision(d))
			}
		}
	}
	for _, d := range all {
		i := slices.IndexFunc(kinds, func(k kindCount) bool { return k.Kind == d.GetKind() })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, kindCount{Kind: d.GetKind()})
		}
		kinds[i].Count++
	}
	return shown, kinds
}

type kindCount struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

func newDecision(d *slicerv1.Decision) decisionView {
	return decisionView{
		d.GetKind(), d.GetReason(), assignment.SliceKey(d.GetStart()).String(), assignment.SliceKey(d.GetEnd()).String(),
		d.GetFrom(), d.GetTo(), num(d.GetBenefit()), num(d.GetKeyChurn()), num(d.GetLoadChurn()),
	}
}

// overrideView is one override in force.
type overrideView struct {
	Kind  string `json:"kind"` // freeze, pin, exclude, drain or roll back
	Task  string `json:"task,omitempty"`
	Start string `json:"start,omitempty"`
	End   string `json:"end,omitempty"`
	Until int64  `json:"until,omitempty"`
	Of    int64  `json:"of,omitempty"` // generation
	By    string `json:"by"`
	Why   string `json:"why,omitempty"`
	Since int64  `json:"since"`
}

type overridesView struct {
	All  []overrideView `json:"all"`
	More int            `json:"more,omitempty"`
}

const maxOverrides = 200

func newOverrides(o *slicerv1.Overrides) *overridesView {
	v := &overridesView{All: []overrideView{}}
	add := func(s *slicerv1.Stamp, x overrideView) {
		x.By, x.Why, x.Since = health.By(s), s.GetWhy(), s.GetUnixMs()
		v.All = append(v.All, x)
	}
	if f := o.GetFreeze(); f != nil {
		add(f.GetStamp(), overrideView{Kind: "freeze", Until: f.GetUntilUnixMs()})
	}
	if b := o.GetRollback(); b != nil {
		add(b.GetStamp(), overrideView{Kind: "roll back", Of: b.GetGeneration()})
	}
	for _, x := range o.GetExcluded() {
		add(x.GetStamp(), overrideView{Kind: "exclude", Task: x.GetTask()})
	}
	for _, x := range o.GetDrains() {
		add(x.GetStamp(), overrideView{Kind: "drain", Task: x.GetTask()})
	}
	for _, x := range o.GetPins() {
		add(x.GetStamp(), overrideView{Kind: "pin", Task: x.GetTask(), Start: assignment.SliceKey(x.GetStart()).String(), End: assignment.SliceKey(x.GetEnd()).String()})
	}
	if n := len(v.All) - maxOverrides; n > 0 {
		v.All, v.More = v.All[:maxOverrides], n
	}
	return v
}
