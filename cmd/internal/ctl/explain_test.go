package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestExplainLeavesOutWhatMovesNothing: a move is not lost among the splits and merges of the same
// round, of which a few are named and the others counted; with none left out nothing is said.
func TestExplainLeavesOutWhatMovesNothing(t *testing.T) {
	at := time.UnixMilli(1e12)
	cut := decisionView{Kind: "merge", Reason: "neighbours on the same tasks", Start: "0", End: "8"}
	move := decisionView{Kind: "move", Reason: "hottest task", From: "web-0", To: "web-1", Start: "0", End: "8"}
	v := &explainView{Job: "web", Key: "k", Owners: []keyOwnerView{{Task: "web-1", Since: 7, Given: 7}}, Changes: []entryView{
		{Generation: 6, At: at, Decisions: []decisionView{cut, cut}},
		{Generation: 7, At: at, Decisions: []decisionView{cut, cut, cut, cut, move, cut}},
	}}
	var b bytes.Buffer
	v.print(&b, at)
	_, list, _ := strings.Cut(b.String(), "what was done to it")
	newest, oldest, ok := strings.Cut(list, "generation 6")
	if !ok || strings.Count(newest, "merge (") != 2 || strings.Count(newest, "from web-0 to web-1") != 1 || !strings.Contains(newest, "\n  3 more splits and merges, which move no key\n") {
		t.Errorf("the newest:\n%s", newest)
	}
	if strings.Count(oldest, "merge (") != 2 || strings.Contains(oldest, "more") {
		t.Errorf("the oldest:\n%s", oldest)
	}
}
