package assigner

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// hoarder is a store with a history of its own.
type hoarder struct {
	store.Backend
	entries []store.Entry
}

func (h *hoarder) History(context.Context, string, int) ([]store.Entry, error) { return h.entries, nil }

// However long the history, answers are as large as clients take: they have what is
// newest, say how much they leave out, and have no penalties.
func TestLongHistories(t *testing.T) {
	t.Parallel()
	h := &hoarder{Backend: openPebble(t)}
	n := start(t, Config{Stores: []NamedStore{{Backend: h}}})
	n.put(&slicerv1.JobConfig{Name: "job"})
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	d.reports("job", true, task("t1", 1))
	newest := d.holds("job", "t1", ownedBy("t1")).Generation()

	long := store.Decision{Kind: "move", Reason: "overload", Slice: assignment.Slice{End: assignment.KeyspaceEnd}, From: strings.Repeat("x", 100), To: strings.Repeat("y", 100)}
	given := long
	given.To = "t1"
	for i := range store.MaxHistory {
		e := store.Entry{Generation: newest - store.MaxHistory + 1 + assignment.Generation(i), Stamp: store.Stamp{When: time.UnixMilli(1)},
			Penalties: []store.Penalty{{Task: "t1", Amount: 1}}}
		for range 100 {
			e.Decisions = append(e.Decisions, long)
		}
		h.entries = append(h.entries, e)
	}
	h.entries[0].Decisions = []store.Decision{given}
	check := func(what string, m proto.Message, entries []*slicerv1.HistoryEntry, leftOut uint32) {
		t.Helper()
		if size := proto.Size(m); size > 4<<20 || size < 2<<20 || len(entries) == 0 || len(entries)+int(leftOut) != store.MaxHistory {
			t.Fatalf("%s: %d bytes, %d entries, %d left out", what, size, len(entries), leftOut)
		}
		for i, e := range entries {
			if want := int64(newest) - int64(len(entries)-1-i); e.Generation != want || len(e.Penalties) > 0 {
				t.Fatalf("%s: entry %d is of generation %d with %d penalties, want %d without", what, i, e.Generation, len(e.Penalties), want)
			}
		}
	}
	all, err := n.admin.GetHistory(t.Context(), &slicerv1.GetHistoryRequest{Job: "job"})
	if err != nil {
		t.Fatal(err)
	}
	check("history", all, all.Entries, all.LeftOut)
	explain := func() *slicerv1.ExplainKeyResponse {
		t.Helper()
		x, err := n.admin.ExplainKey(t.Context(), &slicerv1.ExplainKeyRequest{Job: "job", Key: 7})
		if err != nil {
			t.Fatal(err)
		}
		check("explain", x, x.Changes, x.LeftOut)
		if x.Oldest != int64(h.entries[0].Generation) || len(x.Owners) != 1 {
			t.Fatalf("it goes back to %d, with %d owners", x.Oldest, len(x.Owners))
		}
		return x
	}
	if o := explain().Owners[0]; o.Given != 0 || !strings.HasSuffix(o.Unknown, "oldest changes are left out here for want of room") {
		t.Errorf("what gave the key is left out: %v", o)
	}
	h.entries[store.MaxHistory-2].Decisions = []store.Decision{given}
	if o := explain().Owners[0]; o.Given != int64(newest)-1 || o.Unknown != "" {
		t.Errorf("what gave the key is there: %v", o)
	}
}
