package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// roundView is a round of balancing and why it did what it did.
type roundView struct {
	Generation int64          `json:"generation"`
	At         time.Time      `json:"at"`
	KeyChurn   float64        `json:"key_churn"`
	LoadChurn  float64        `json:"load_churn"`
	Skipped    string         `json:"skipped,omitempty"`
	Decisions  []decisionView `json:"decisions,omitempty"`
}

type decisionView struct {
	Kind      string  `json:"kind"`
	Reason    string  `json:"reason"`
	Start     string  `json:"start,omitempty"`
	End       string  `json:"end,omitempty"`
	From      string  `json:"from,omitempty"`
	To        string  `json:"to,omitempty"`
	Benefit   float64 `json:"benefit"`
	KeyChurn  float64 `json:"key_churn"`
	LoadChurn float64 `json:"load_churn"`
}

func newRound(r *slicerv1.Round) *roundView {
	if r == nil || r.UnixMs == 0 {
		return nil
	}
	v := &roundView{Generation: r.Generation, At: time.UnixMilli(r.UnixMs).UTC(), KeyChurn: r.KeyChurn, LoadChurn: r.LoadChurn, Skipped: r.Skipped}
	v.Decisions = newDecisions(r.Decisions)
	return v
}

func newDecisions(all []*slicerv1.Decision) (out []decisionView) {
	for _, d := range all {
		dv := decisionView{Kind: d.Kind, Reason: d.Reason, From: d.From, To: d.To,
			Benefit: d.Benefit, KeyChurn: d.KeyChurn, LoadChurn: d.LoadChurn}
		if d.End > d.Start {
			dv.Start, dv.End = assignment.SliceKey(d.Start).String(), assignment.SliceKey(d.End).String()
		}
		out = append(out, dv)
	}
	return out
}

// summary counts the decisions by kind and reason: "3 move (overload), 1 split (...)".
func (r *roundView) summary() string {
	if r == nil {
		return ""
	}
	var order []string
	count := map[string]int{}
	for _, d := range r.Decisions {
		k := d.Kind
		if d.Reason != "" {
			k += " (" + d.Reason + ")"
		}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
	}
	slices.SortStableFunc(order, func(a, b string) int { return count[b] - count[a] })
	for i, k := range order {
		order[i] = fmt.Sprintf("%d %s", count[k], k)
	}
	if r.Skipped != "" {
		order = append(order, "balancing skipped: "+r.Skipped)
	}
	return strings.Join(order, ", ")
}
