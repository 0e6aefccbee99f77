package clerkgrpc

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/overload"
)

// TestLabels: an RPC says what its context says, and otherwise what the client is
// configured for.
func TestLabels(t *testing.T) {
	said := func(md metadata.MD) string {
		var all []string
		for _, name := range []string{CriticalityHeader, CohortHeader, CustomerHeader} {
			all = append(all, strings.Join(md.Get(name), ","))
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		cfg  Config
		want [3]string
	}{
		{Config{}, [3]string{"  ", "critical_plus 0 mail", "sheddable 127 "}},
		{Config{Clerk: clerk.Config{Criticality: overload.SheddablePlus}}, [3]string{"sheddable_plus  ", "critical_plus 0 mail", "sheddable 127 "}},
	} {
		run(t, c.cfg, func(b *bed) {
			tasks := three()[:1]
			s := b.serve(tasks[0])
			b.put(tasks, []uint32{0})
			ctx := clerk.WithKey(b.t.Context(), "k")
			for i, ctx := range []context.Context{
				ctx,
				overload.WithCustomer(overload.WithCohort(overload.WithCriticality(ctx, overload.CriticalPlus), 0), "mail"),
				overload.WithCohort(overload.WithCriticality(ctx, overload.Sheddable), 127),
			} {
				if _, err := b.ask(ctx); err != nil {
					b.t.Fatal(err)
				}
				if got := said(s.newest()); got != c.want[i] {
					b.t.Errorf("context %d: %q, want %q", i, got, c.want[i])
				}
			}
			// What is sent again says the same.
			s.mu.Lock()
			s.refuse = 1
			s.mu.Unlock()
			if _, err := b.ask(overload.WithCohort(ctx, 5)); err != nil || said(s.newest()) != strings.Replace(c.want[0], "  ", " 5 ", 1) {
				b.t.Errorf("sent again: %q, %v", said(s.newest()), err)
			}
		})
	}
	if err := (Config{Clerk: clerk.Config{Distributors: []string{"a:1"}, Criticality: assignment.Criticality(9)}}).Validate(); err == nil || !strings.Contains(err.Error(), "criticality: 9 is not allowed") {
		t.Errorf("criticality 9: %v", err)
	}
}
