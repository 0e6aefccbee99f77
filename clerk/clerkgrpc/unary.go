package clerkgrpc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/internal/flight"
)

// unary gives an RPC its route, and sends one that was refused again.
func (s *source) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := new(routed)
	if err := s.start(ctx, c, method, request); err != nil {
		return err
	}
	for times := 0; ; times++ {
		err := s.try(c, method, request, reply, cc, invoke, opts...)
		if err == nil {
			return nil
		}
		if again, wait := s.again(c, cc, method, err, times); !again {
			return wait
		}
	}
}

// maxDeaths is how many tasks may die under an RPC.
const maxDeaths = 3

// try sends an RPC to a task. One that may be carried out twice goes to the next
// owner when the assignment says that its task is dead, rather than wait for an
// answer from a machine that stands still or is cut off.
func (s *source) try(c *routed, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !c.route.keyed || !repeatable(c, cc, method) {
		return invoke(c, method, request, reply, cc, opts...)
	}
	for deaths := 0; ; deaths++ {
		ctx, f := flight.New(c.Context)
		if deaths > 0 {
			ctx = withAttempt(ctx, clerk.AttemptOf(ctx)+c.attempts+deaths)
		}
		one := &routed{Context: ctx, route: route{key: c.route.key, hash: c.route.hash, keyed: true, flight: f, labels: c.route.labels}}
		one.route.job.Store(c.route.job.Load())
		begun := time.Now()
		err := invoke(one, method, request, reply, cc, opts...)
		died := err != nil && context.Cause(ctx) == flight.ErrDead
		f.End()
		c.route.last.Store(one.route.last.Load())
		c.route.job.Store(one.route.job.Load())
		if !died || c.Err() != nil {
			return err
		}
		if j := one.route.job.Load(); deaths == maxDeaths || j == nil || !j.clerk.MayRetryAfterDeath(time.Since(begun)) {
			return status.Errorf(codes.Unavailable, "clerkgrpc: %v, and there may be no more retries", flight.ErrDead)
		}
	}
}

// repeatable reports whether an RPC may be carried out twice: if it is marked so, or
// if the service config has it retried on UNAVAILABLE, since that does not say what
// the task has done.
func repeatable(ctx context.Context, cc *grpc.ClientConn, method string) bool {
	if clerk.Idempotent(ctx) {
		return true
	}
	p := cc.GetMethodConfig(method).RetryPolicy
	return p != nil && p.RetryableStatusCodes[codes.Unavailable]
}

// again waits until it is time to send an RPC again that has failed, if it failed because
// the task does not own its key. Otherwise it returns the error to fail with; that may be
// a refusal of another job, which the task itself is a client of.
func (s *source) again(c *routed, cc *grpc.ClientConn, method string, failed error, times int) (bool, error) {
	r := &c.route
	name := targetJob(cc)
	if full, ok := clerk.OverloadedFromStatus(failed); ok && (full.Job == "" || full.Job == name) {
		return s.elsewhere(c, name, full)
	}
	ofJob := func(job string) bool { return r.keyed && (job == "" || job == name) }
	refused, isRefused := clerk.RefusedFromStatus(failed)
	lost, isLost := clerk.LostFromStatus(failed)
	isRefused = isRefused && ofJob(refused.Job)
	isLost = isLost && ofJob(lost.Job) && repeatable(c, cc, method)
	if !isRefused && !isLost {
		return false, s.explain(name, r, failed)
	}
	j := s.jobOf(name)
	if j == nil {
		return false, failed
	}
	var err error
	if isLost {
		j.tally.lost.Add(1)
		lost.Times = times
		err = j.clerk.AwaitOwnerAfterLoss(c, r.key, lost)
	} else {
		j.tally.refused.Add(1)
		refused.Times = times
		err = j.clerk.AwaitOwner(c, r.key, refused)
	}
	if err != nil {
		return false, status.Error(status.FromContextError(c.Err()).Code(), err.Error())
	}
	return true, nil
}

// elsewhere reports whether an RPC that a task has no room for is to be sent to another
// task, and else returns the error to fail with, which says that there should be no retry.
func (s *source) elsewhere(c *routed, name string, full clerk.Overloaded) (bool, error) {
	j := s.jobOf(name)
	if j != nil && full.Elsewhere && c.attempts+1 < j.clerk.Attempts() && j.clerk.Mode() != assignment.Consistent && j.clerk.MayRetry() {
		j.tally.overloaded.Add(1)
		if c.attempts < len(c.route.full) {
			c.route.full[c.attempts] = c.route.last.Load()
		}
		c.attempts++
		c.Context = withAttempt(c.Context, clerk.AttemptOf(c.Context)+c.attempts)
		return true, nil
	}
	full.Elsewhere = false
	return false, full.GRPCStatus().Err()
}

// withAttempt tells the task how often the RPC has been sent before.
func withAttempt(ctx context.Context, before int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, AttemptHeader, strconv.Itoa(before))
}

// explain adds why there is no assignment to the error of an RPC that has waited
// for one in vain.
func (s *source) explain(name string, r *route, failed error) error {
	if code := status.Code(failed); code != codes.DeadlineExceeded && code != codes.Canceled || r.last.Load() != nil {
		return failed
	}
	if why := s.why(name); why != "" {
		return status.Error(status.Code(failed), fmt.Sprintf("clerkgrpc: no assignment: %s", why))
	}
	return failed
}
