package slicelet

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

type claims struct{ criticality, cohort, customer string }

// labelled is what adapters make of claims.
func (s *Slicelet) labelled(ctx context.Context, c claims) overload.Labels {
	l := s.Labels(c.criticality, c.cohort)
	l.Customer = s.CustomerOf(ctx, c.customer)
	return l
}

// TestLabels: a request is what it claims to be, as far as that is allowed.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, func(cfg *Config) { cfg.Customer = BelieveCustomer })
		defer c.stop()
		for _, x := range []struct {
			claims      claims
			criticality overload.Criticality
			cohort      int // -1: any
			customer    string
		}{
			{claims{}, overload.Critical, -1, ""},
			{claims{"sheddable", "0", "mail"}, overload.Sheddable, 0, "mail"},
			{claims{"critical_plus", "127", strings.Repeat("m", 128)}, overload.CriticalPlus, 127, strings.Repeat("m", 128)},
			{claims{"CRITICAL_PLUS", "128", strings.Repeat("m", 129)}, overload.Critical, -1, ""},
			{claims{"sheddable,critical_plus", "-1", "a b"}, overload.Critical, -1, ""},
			{claims{" ", "0000000000000000000000000000000000000000001", "\x00"}, overload.Critical, -1, ""},
		} {
			l := c.s.labelled(t.Context(), x.claims)
			cohort, ok := l.Cohort()
			if l.Criticality != x.criticality || !ok || x.cohort >= 0 && cohort != x.cohort || l.Customer != x.customer {
				t.Errorf("%q: %+v", x.claims, l)
			}
		}
		drawn := map[int]bool{}
		for range 2000 {
			cohort, _ := c.s.Labels("", "").Cohort()
			drawn[cohort] = true
		}
		if len(drawn) < overload.Cohorts/2 {
			t.Errorf("%d cohorts were drawn", len(drawn))
		}
		// The job's default, as the control plane says it; one that does not exist is none.
		for said, want := range map[slicerv1.Criticality]overload.Criticality{
			slicerv1.Criticality_CRITICALITY_SHEDDABLE_PLUS: overload.SheddablePlus, 77: overload.Critical, -1: overload.Critical, 0: overload.Critical,
		} {
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, Overload: &slicerv1.OverloadConfig{DefaultCriticality: said}})
			synctest.Wait()
			if got := c.s.Labels("", "").Criticality; got != want {
				t.Errorf("default %d: %s, want %s", said, got, want)
			}
			if got := c.s.Labels("critical_plus", "").Criticality; got != overload.CriticalPlus {
				t.Errorf("default %d: what is said is %s", said, got)
			}
		}
	})
}

// TestCustomer: who decides what a request is charged to.
func TestCustomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type peer struct{}
		for _, x := range []struct {
			what     string
			customer func(context.Context, string) string
			want     string
		}{
			{"nobody is believed", nil, ""},
			{"everybody is", BelieveCustomer, "mail"},
			{"by the connection", func(ctx context.Context, _ string) string { return ctx.Value(peer{}).(string) }, "spiffe://corp/batch"},
			{"a bad name", func(context.Context, string) string { return "a b" }, ""},
		} {
			c := newCluster(t, func(cfg *Config) { cfg.Customer = x.customer })
			ctx := context.WithValue(t.Context(), peer{}, "spiffe://corp/batch")
			if got := c.s.CustomerOf(ctx, "mail"); got != x.want {
				t.Errorf("%s: %q, want %q", x.what, got, x.want)
			}
			c.stop()
		}
	})
}

// FuzzLabels: whatever headers say, the labels are allowed ones.
func FuzzLabels(f *testing.F) {
	f.Add("critical", "5", "mail")
	f.Add("Critical", "+5", "mail ")
	f.Add("", "007", "é")
	s := &Slicelet{arrivals: arrivals{customer: BelieveCustomer}}
	f.Fuzz(func(t *testing.T, criticality, cohort, customer string) {
		if _, err := assignment.ParseCriticality(criticality); err != nil {
			return // the default takes a control plane
		}
		l := s.labelled(t.Context(), claims{criticality, cohort, customer})
		n, ok := l.Cohort()
		if !l.Criticality.Valid() || !ok || n < 0 || n >= overload.Cohorts || l.Customer != "" && l.Customer != customer {
			t.Errorf("%+v", l)
		}
	})
}
