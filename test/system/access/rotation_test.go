package access

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/test/kit/process"
)

// TestRotation: while a service is called, all certificates are replaced, then the authority in the
// documented order: trusted beside the old one, then signing, then alone. No call and no join
// fails, and no stream ends. Then each process starts anew, with the new authority alone. A
// certificate of the old one is worth nothing any more.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.files = map[string]accesstest.Files{}
	parts := []string{atAssigner, atFirst, atSecond}
	for _, where := range parts {
		b.start(where, b.policy...)
	}
	b.put(atSecond, configs()[0])
	h := b.serve(b.at[atSecond], b.at[atFirst])
	incarnations := func() (all []uint64) {
		a, _, err := b.join(b.at[atSecond])
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.NumTasks() {
			all = append(all, a.Task(i).Incarnation)
		}
		slices.Sort(all)
		return all
	}
	before := incarnations()
	calls := h.calls.Load()
	well := func(when string) {
		t.Helper()
		from := h.calls.Load()
		for range 5 {
			for _, where := range parts[1:] {
				if _, took, err := b.join(b.at[where]); err != nil {
					t.Errorf("%s: a client cannot join %s, after %s: %v", when, where, took, err)
				}
			}
		}
		process.Eventually(t, limit, "calls go on "+when, func() error {
			if n := h.calls.Load(); n < from+30 {
				return fmt.Errorf("%d calls", n-from)
			}
			return nil
		})
		h.unharmed(when)
	}
	rewrite := func(by *accesstest.Authority, trusted ...*accesstest.Authority) {
		t.Helper()
		for id, f := range b.files {
			by.Rewrite(f, id, trusted...)
		}
	}
	old, next := b.authority, accesstest.New(t)
	for _, step := range []struct {
		what    string
		by      *accesstest.Authority
		trusted []*accesstest.Authority
	}{
		{"new certificates", old, []*accesstest.Authority{old}},
		{"a second authority", old, []*accesstest.Authority{old, next}},
		{"certificates of the second", next, []*accesstest.Authority{old, next}},
		{"without the first", next, []*accesstest.Authority{next}},
	} {
		rewrite(step.by, step.trusted...)
		well(step.what)
	}
	lost := h.lost()
	if lost > 0 {
		t.Errorf("%v streams have ended by the rotation", lost)
	}
	called := h.calls.Load() - calls
	for _, where := range parts {
		b.start(where, b.policy...)
		reached := where
		if where == atAssigner {
			reached = atFirst
		}
		process.Eventually(t, limit, where+" serves again", func() error {
			_, _, err := b.join(b.at[reached])
			return err
		})
		well(fmt.Sprint("after ", where, " has started anew"))
	}
	if after := incarnations(); !slices.Equal(before, after) {
		t.Errorf("the tasks are other ones: %x, %x before", after, before)
	}
	b.files = nil // what is made from here on is the old authority's
	if _, _, err := b.join(b.at[atFirst]); err == nil {
		t.Error("a certificate of the old authority is let in")
	} else if status.Code(err) == codes.PermissionDenied {
		t.Errorf("a certificate of the old authority counts for what it says: %v", err)
	}
	h.end()
	h.unharmed("in the end")
	t.Logf("%d calls during the rotation, %d in all; %v streams have ended by it", called, h.calls.Load(), lost)
}
