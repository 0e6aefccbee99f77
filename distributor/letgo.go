package distributor

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// retryAfter is when those that are moved away and know nowhere else are back, about.
const retryAfter = time.Second

// rebalance moves some subscribers away if there are far more of them here: those that
// have been here longest, so that none is moved again before all others have been. They
// are clerks: a slicelet that came to a Distributor that the assigner does not hear could
// be taken for dead.
func (j *job) rebalance(now time.Time) (next time.Time) {
	s := &j.share
	s.Distributors, s.Mean = 0, 0
	if j.known() && !j.d.second() { // the first tier does not know who is of the second
		s.Distributors, s.Mean = int(j.answer.status.GetDistributors()), int(j.answer.status.GetMeanSubscribers())
	}
	here := j.conv.Connected(slicerv1.Role_ROLE_CLERK) + j.conv.Connected(slicerv1.Role_ROLE_SLICELET)
	was, rested := s.Moving, s.RestUntil
	n, next := s.Look(now, here, j.paced.After(now))
	if !s.RestUntil.Equal(rested) {
		j.log.Info("subscribers that were moved away have come back", "subscribers", here, "mean", s.Mean, "not_again_for", s.Rest)
	}
	if n == 0 {
		return next
	}
	var ids []uint64
	for id, sub := range j.subs {
		if sub.in.role == slicerv1.Role_ROLE_CLERK && now.Sub(sub.joined) >= fanout.RebalanceAfter && !sub.progress.InFlight() && !sub.sending {
			ids = append(ids, id)
		}
	}
	if len(ids) < n {
		if next = s.Found(now, next, here, n, len(ids)); len(ids) == 0 {
			return next
		}
	}
	if !was {
		j.log.Info("far more subscribers than others have, moving some away", "subscribers", here, "mean", s.Mean, "distributors", s.Distributors)
	}
	slices.Sort(ids)
	for _, id := range ids[:min(n, len(ids))] {
		j.subs[id].end(elsewhere())
		j.d.metrics.sentAway.Inc()
	}
	return next
}

// elsewhere sends a subscriber to another Distributor, and back only if it knows no other.
func elsewhere() error {
	s := status.New(codes.Unavailable, "other distributors have fewer subscribers")
	if with, err := s.WithDetails(&slicerv1.ComeBack{AfterMs: retryAfter.Milliseconds()}); err == nil {
		s = with
	}
	return s.Err()
}
