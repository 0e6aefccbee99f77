package fanout

import (
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// UsesGap is the time between two messages of what customers ask for, and maxNames how many
// names each has.
const (
	UsesGap  = time.Second
	maxNames = 64
)

// quotas are how much of the job's limits tasks may use that are connected here: of what the
// assigner gives all of them each gets its share with each report of its own.
type quotas struct {
	claims *overload.Claims[string] // by task
	above  *wire.Quotas             // as the assigner has said last, nil if it has not, or there are no limits
}

func newQuotas() quotas { return quotas{claims: overload.NewClaims[string](wire.MaxCustomers)} }

// gone is for a task that asks for nothing any more.
func (q *quotas) gone(task string) {
	if !keepClaims {
		q.claims.Set(task, nil, 0, nil)
	}
}

// share is how much all tasks here may use.
func (q *quotas) share(customer uint64) (rate float64, ok bool) {
	rate, ok = q.above.Shares[customer]
	return rate, ok
}

// quoted takes how much of the limits the tasks here may use.
func (j *Job) quoted(e Quoted) {
	if e.From != j.up.preferred.Session {
		return // it is not for it to say, not any more
	}
	if j.down.quotas.above == nil && e.Quotas.GetLimits() == nil {
		return // the limits that these shares are of were missed; they are asked for
	}
	q, err := wire.QuotasFromProto(e.Quotas, j.down.quotas.above)
	if err != nil {
		j.say(slog.LevelError, "quotas from the assigner refused", "error", err)
		return
	}
	j.down.limit(q)
}

// limit takes new quotas, nil for none. Tasks are told at once of new limits, and else with
// their next report.
func (d *downward) limit(q *wire.Quotas) {
	was := d.quotas.above
	d.quotas.above = q
	if was != nil && q != nil && was.Limits.Equal(q.Limits) || was == nil && q == nil {
		return
	}
	if q == nil {
		d.quotas.claims = newQuotas().claims
	}
	for _, s := range d.subs.all {
		if s.in.Role == slicerv1.Role_ROLE_SLICELET {
			s.quotas = quotasDue{limits: q != nil, due: q != nil}
			d.wake(s)
		}
	}
}

// quotasDue is what a slicelet is to be told of quotas.
type quotasDue struct {
	due    bool // something
	limits bool // the limits, too
}

// use takes what customers ask of a task.
func (d *downward) use(now time.Time, s *subscriber, r *slicerv1.Report) {
	if d.quotas.above == nil {
		return
	}
	uses, names, err := wire.UseFromProto(r.GetCustomers(), wire.MaxTaskCustomers)
	if err != nil {
		d.complain(now, s.key, "what customers ask of a task counts for nothing", "task", s.in.Task.GetName(), "error", err)
		uses = nil
	}
	d.quotas.claims.Set(s.in.Task.GetName(), uses, s.in.Task.GetWeight(), names)
	if len(uses) > 0 && len(d.quotas.above.Shares) > 0 {
		s.quotas.due = true
		d.wake(s)
	}
}

// lacksQuotas reports whether a slicelet is to be told something. It has been told first that
// there are limits: a status without them takes them back.
func (d *downward) lacksQuotas(s *subscriber) bool {
	return s.quotas.due && d.publisher.shown.GetLimited()
}

// quotasFor is what a slicelet is told.
func (d *downward) quotasFor(s *subscriber) *prepared.Messages {
	var limits *assignment.Limits
	if s.quotas.limits {
		limits = &d.quotas.above.Limits
	}
	s.quotas = quotasDue{}
	shares := d.quotas.claims.Shares(s.in.Task.GetName(), d.quotas.share)
	if wholeShares {
		for i := range shares {
			shares[i].Share, _ = d.quotas.share(shares[i].Customer)
		}
	}
	m := wire.QuotasToProto(shares, limits)
	return prepared.New(func() ([]proto.Message, error) {
		return []proto.Message{&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: m}}}, nil
	})
}

// limited reports whether there are limits, whether or not they are known here.
func (u *upward) limited() bool { return u.answer.status.GetLimited() }

// uses are what customers ask of all tasks here, for the assigner, or that the limits are not
// known here; nil if there are none. While something is asked for it is said again each UsesGap,
// so that the assigner need not believe for long what a Distributor says no more. In the same way
// a task that is silent for as long as it takes to be taken for dead asks for nothing: what it
// asked for before is asked of others now, and its share would be used by none.
func (u *upward) uses(now time.Time) *slicerv1.AttachRequest {
	switch {
	case !u.limited():
		return nil
	case u.down.quotas.above == nil:
		return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_CustomerUses{CustomerUses: &slicerv1.CustomerUses{Job: u.cfg.Name, Asks: true}}}
	}
	capacity := 0.
	for _, t := range u.reports.order {
		if now.Sub(t.at) > u.answer.heartbeat() {
			u.down.quotas.gone(t.task.GetName())
		} else {
			capacity += t.task.GetWeight()
		}
	}
	if !u.down.quotas.claims.Empty() {
		u.schedule.usesChanged(now, true)
	}
	all, names := u.down.quotas.claims.Sum(maxNames)
	return &slicerv1.AttachRequest{Message: &slicerv1.AttachRequest_CustomerUses{CustomerUses: &slicerv1.CustomerUses{
		Job: u.cfg.Name, Use: wire.UseToProto(all, names), Capacity: capacity,
	}}}
}
