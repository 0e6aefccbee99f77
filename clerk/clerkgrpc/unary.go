package clerkgrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/clerk"
)

// unary gives an RPC its route, and sends one that was refused again.
func (s *source) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, err := s.start(ctx, method, request)
	if err != nil {
		return err
	}
	for times := 0; ; times++ {
		err = invoke(c, method, request, reply, cc, opts...)
		if err == nil {
			return nil
		}
		if again, wait := s.again(c, cc, err, times); !again {
			return wait
		}
	}
}

// again waits until it is time to send an RPC again that has failed, if it is a
// matter of who owns its key. Otherwise it returns the error to fail with.
func (s *source) again(c *routed, cc *grpc.ClientConn, failed error, times int) (bool, error) {
	r := &c.route
	name := targetJob(cc)
	refused, ok := clerk.RefusedFromStatus(failed)
	if !ok || !r.keyed {
		return false, s.explain(name, r, failed)
	}
	j := s.jobOf(name)
	if j == nil {
		return false, failed
	}
	j.tally.refused.Add(1)
	refused.Times = times
	if err := j.clerk.AwaitOwner(c, r.key, refused); err != nil {
		return false, status.Error(status.FromContextError(c.Err()).Code(), err.Error())
	}
	return true, nil
}

// explain adds why there is no assignment to the error of an RPC that has waited
// for one in vain.
func (s *source) explain(name string, r *route, failed error) error {
	if code := status.Code(failed); code != codes.DeadlineExceeded && code != codes.Canceled || r.last.Load() != nil {
		return failed
	}
	if why := s.why(name); why != "" {
		return status.Error(status.Code(failed), fmt.Sprintf("clerkgrpc: no assignment of job %q: %s", name, why))
	}
	return failed
}
