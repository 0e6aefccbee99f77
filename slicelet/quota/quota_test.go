package quota_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/slicelet/quota"
)

func limits(t *testing.T, others assignment.Limit, named map[string]assignment.Limit) assignment.Limits {
	t.Helper()
	l, err := assignment.LimitsOf(others, named)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run asks for so many requests a second, evenly, and returns how many a second are let in.
func run(a *quota.Accounts, now *time.Time, over time.Duration, rate float64, customer string, done func(*quota.Account, float64)) float64 {
	served, n := 0, int(rate*over.Seconds())
	for range n {
		*now = now.Add(over / time.Duration(n))
		x := a.Find(*now, customer)
		if x == nil {
			served++
		} else if cost, ok := x.Charge(*now, assignment.Critical, 0); ok {
			served++
			if done != nil {
				done(x, cost)
			}
		}
	}
	return float64(served) / over.Seconds()
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > .06*want {
		t.Errorf("%s: %.3g, want %.3g", what, got, want)
	}
}

// A share holds while a Distributor serves, and half a minute longer, and then goes to an
// equal part of the limit.
func TestSharesAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := quota.New(now)
	near(t, "without limits", run(a, &now, time.Second, 1000, "mail", nil), 1000)
	a.SetLimits(now, limits(t, assignment.Limit{Rate: 40}, map[string]assignment.Limit{"mail": {Rate: 100}}), nil)
	a.Look(now, true, 10, assignment.LoadRequests, 0)
	run(a, &now, 10*time.Second, 1000, "mail", nil)
	near(t, "an equal part", run(a, &now, 20*time.Second, 1000, "mail", nil), 10)
	near(t, "one of the others", run(a, &now, 60*time.Second, 1000, "other", nil), 4)
	near(t, "no customer", run(a, &now, time.Second, 1000, "", nil), 1000)
	a.SetLimits(now, limits(t, assignment.Limit{Rate: 40}, map[string]assignment.Limit{"mail": {Rate: 100}}), map[uint64]float64{assignment.CustomerID("mail"): 50})
	run(a, &now, 3*time.Second, 1000, "mail", nil)
	near(t, "a share", run(a, &now, 20*time.Second, 1000, "mail", nil), 50)
	now = now.Add(24 * time.Hour)
	a.Look(now, true, 10, assignment.LoadRequests, 0)
	now = now.Add(30 * time.Second)
	a.Look(now, false, 10, assignment.LoadRequests, 0)
	run(a, &now, 3*time.Second, 1000, "mail", nil)
	near(t, "a share of which nothing is heard", run(a, &now, 20*time.Second, 1000, "mail", nil), 50)
	now = now.Add(127 * time.Second)
	a.Look(now, false, 10, assignment.LoadRequests, 0)
	run(a, &now, 3*time.Second, 1000, "mail", nil)
	near(t, "a share half way to an equal part", run(a, &now, 20*time.Second, 1000, "mail", nil), 30)
	now = now.Add(time.Hour)
	a.Look(now, false, 10, assignment.LoadRequests, 0)
	run(a, &now, 3*time.Second, 1000, "mail", nil)
	near(t, "an old share", run(a, &now, 20*time.Second, 1000, "mail", nil), 10)
	a.SetLimits(now, assignment.Limits{}, nil)
	near(t, "without limits again", run(a, &now, time.Second, 1000, "mail", nil), 1000)
}

// In jobs that measure load otherwise than by requests a request costs what it turns out to.
func TestCosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		metric    string
		perSecond float64
		took      time.Duration
		says      float64
		want      float64 // requests a second, of a limit of 2 units
	}{
		{assignment.LoadRequests, 0, time.Second, 7, 2},
		{assignment.LoadCPU, .5, 20 * time.Millisecond, 0, 200},
		{assignment.LoadCPU, .5, 20 * time.Millisecond, .1, 20},
		{assignment.LoadCustom, 0, time.Second, .25, 8},
		{assignment.LoadCustom, 0, time.Second, 0, 2},
	} {
		now := time.Now()
		a := quota.New(now)
		a.SetLimits(now, limits(t, assignment.Limit{Rate: 2}, nil), nil)
		a.Look(now, true, 1, tc.metric, tc.perSecond)
		done := func(x *quota.Account, cost float64) { x.Done(cost, tc.took, tc.says) }
		run(a, &now, 10*time.Second, 1000, "mail", done)
		a.Look(now, true, 1, tc.metric, tc.perSecond)
		a.Report(now)
		near(t, fmt.Sprintf("%+v", tc), run(a, &now, 50*time.Second, 1000, "mail", done), tc.want)
		uses, names := a.Report(now)
		if len(uses) != 1 || len(names) != 1 || names[0] != "mail" || uses[0].Customer != assignment.CustomerID("mail") {
			t.Fatalf("%+v: %v %v", tc, uses, names)
		}
		if u := uses[0]; math.Abs(u.Used-2) > .2 || math.Abs(u.Asked-1000*2/tc.want) > .1*u.Asked {
			t.Errorf("%+v: %+v", tc, u)
		}
	}
}

// Customers that are not limited, or ask for nothing any more, take no room; those that are
// too many share one limit, and only the heaviest are reported, each by name in turn.
func TestBounds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := quota.New(now)
	l := limits(t, assignment.Limit{Rate: 10}, map[string]assignment.Limit{"free": {}})
	a.SetLimits(now, l, nil)
	if a.Find(now, "free") != nil {
		t.Error("a customer without a limit has an account")
	}
	for i := range 5000 {
		run(a, &now, time.Millisecond, 1000*(1+float64(i/1000)), fmt.Sprint(i), nil)
	}
	if a.Find(now, "x") != a.Find(now, "y") {
		t.Error("customers beyond the most there may be have accounts of their own")
	}
	named := make(map[string]bool)
	for range 100 {
		now = now.Add(100 * time.Millisecond)
		for i := range 300 {
			run(a, &now, time.Millisecond, 1000*float64(1+i/100), fmt.Sprint(i), nil)
		}
		uses, names := a.Report(now)
		if len(uses) != wire.MaxTaskCustomers {
			t.Fatalf("%d reported", len(uses))
		}
		for i, u := range uses {
			if i > 0 && uses[i-1].Customer >= u.Customer {
				t.Fatal("not in order")
			}
		}
		for _, n := range names {
			named[n] = true
		}
	}
	if len(named) < wire.MaxTaskCustomers {
		t.Errorf("%d were named in 100 reports", len(named))
	}
	now = now.Add(2 * time.Minute)
	a.Report(now)
	if uses, _ := a.Report(now.Add(time.Second)); len(uses) != 0 || len(a.Rates(10)) != 0 {
		t.Errorf("%d are remembered", len(uses))
	}
}

// What was charged for a request that was not served is given back.
func TestCancel(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := quota.New(now)
	a.SetLimits(now, limits(t, assignment.Limit{Rate: 1, MaxCriticality: assignment.Sheddable}, nil), nil)
	x := a.Find(now, "mail")
	for range 1000 {
		cost, ok := x.Charge(now, assignment.Critical, 1)
		if !ok {
			t.Fatal("refused")
		}
		x.Cancel(cost)
	}
	if x.MaxCriticality() != assignment.Sheddable {
		t.Error("it may be as critical as it likes")
	}
	uses, _ := a.Report(now.Add(time.Second))
	if len(uses) != 1 || uses[0].Used != 0 || uses[0].Asked != 2000 {
		t.Errorf("%+v", uses)
	}
}
