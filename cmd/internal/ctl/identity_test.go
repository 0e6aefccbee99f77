package ctl

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Identities come before what callers say of themselves, and records that have none read and
// print as before.
func TestIdentitiesInHistory(t *testing.T) {
	stamp := func(identity, who string) *slicerv1.Stamp {
		return &slicerv1.Stamp{Identity: identity, Who: who, Peer: "10.0.0.1:7", UnixMs: 1}
	}
	long := "spiffe://corp/" + strings.Repeat("ns/", 20) + "deployer"
	v := historyView{Job: "web"}
	var wide []string
	for _, x := range []struct {
		entry       *slicerv1.HistoryEntry
		short, wide string
	}{
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp("", "ada")}, "ada", "ada (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp("", "")}, "unknown", "unknown (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp("anonymous", "ada")}, "ada", "ada (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp("spiffe://corp/ann", "ceo")}, "spiffe://corp/ann", "spiffe://corp/ann as ceo (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp("spiffe://corp/ann", "")}, "spiffe://corp/ann", "spiffe://corp/ann (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Action: "freeze", Stamp: stamp(long, "ada")}, "..." + long[len(long)-33:], long + " as ada (10.0.0.1:7)"},
		{&slicerv1.HistoryEntry{Generation: 7, AssignerId: "a1", Stamp: &slicerv1.Stamp{UnixMs: 1}}, "assigner a1", "assigner a1"},
	} {
		e := newEntry(x.entry)
		v.Entries, wide = append(v.Entries, e), append(wide, x.wide)
		if got := e.shortly(maxBy); got != x.short {
			t.Errorf("%v: %q, want %q", x.entry, got, x.short)
		}
		if got := e.by(); got != x.wide {
			t.Errorf("%v: %q, want %q", x.entry, got, x.wide)
		}
	}
	var table, j bytes.Buffer
	v.print(&table, true)
	for _, w := range wide {
		if !strings.Contains(table.String(), w) {
			t.Errorf("%s is missing in\n%s", w, table.String())
		}
	}
	if err := printJSON(&j, v); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Entries []struct{ Identity, Who string }
	}
	if err := json.Unmarshal(j.Bytes(), &got); err != nil || got.Entries[3].Identity != "spiffe://corp/ann" || got.Entries[3].Who != "ceo" || got.Entries[0].Identity != "" {
		t.Errorf("%+v, %v", got, err)
	}
	s := newStamp(stamp("spiffe://corp/ann", "ceo"), 3)
	if text := s.describe(time.UnixMilli(1001)); text != "by spiffe://corp/ann as ceo 1s ago" {
		t.Error(text)
	}
}
