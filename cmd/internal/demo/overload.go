package demo

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/loadbalance/policy"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
)

// The scene of overload: for some seconds there are ten times as many calls as otherwise, of
// which the servers together could answer two fifths. The most critical tenth of them is as
// much as all calls are otherwise.
const (
	floodTimes = 10
	floodLasts = 5 * time.Second
	// floodSettles is how long after it calls may still be refused.
	floodSettles = 2 * time.Second
	// overloadQPS is the usual number of calls a second, unless it is given: ten times that
	// is to be no work for the machine.
	overloadQPS = 200
	// canTimes is what the servers can do together, to the usual number of calls.
	canTimes = 4
	// workTakes is how long a server works on a call, in one of its slots, and patience how
	// long a call waits for one.
	workTakes = 16 * time.Millisecond
	patience  = 100 * time.Millisecond
)

// mix is how the calls are shared out to criticalities.
var mix = []struct {
	criticality overload.Criticality
	share       float64
}{{overload.CriticalPlus, .1}, {overload.Critical, .5}, {overload.SheddablePlus, .2}, {overload.Sheddable, .2}}

func drawCriticality(x float64) overload.Criticality {
	for _, m := range mix {
		if x -= m.share; x < 0 {
			return m.criticality
		}
	}
	return overload.Sheddable
}

// slotsOf is how many calls a server works on at a time.
func slotsOf(cfg *Config) int {
	return max(int(math.Ceil(canTimes*float64(cfg.QPS)*workTakes.Seconds()/float64(cfg.Tasks))), 1)
}

// work takes the time that a call takes, once there is a slot.
func (s *server) work(ctx context.Context) error {
	if s.room == nil {
		return nil
	}
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case s.room <- struct{}{}:
		time.Sleep(workTakes)
		<-s.room
		return nil
	case <-wait.C:
		return sliceletgrpc.Overloaded(ctx)
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// route makes a connection whose calls go to tasks by their keys, as a user's would. The default
// policy weighs tasks by the CPU time of their process, which is one for all here.
func route(ck *clerk.Clerk, job string) (*grpc.ClientConn, error) {
	opts := clerkgrpc.DialOptions(clerkgrpc.Config{Shared: ck, Policy: policy.LeastLoaded})
	return grpc.NewClient("slicer:///"+job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

// ask makes a call by such a connection.
func (c *client) ask(ctx context.Context, key string, out *outcome) {
	var flags wrapperspb.UInt32Value
	var by peer.Peer
	if err := c.routed.Invoke(clerk.WithKey(ctx, key), methodGet, wrapperspb.String(key), &flags, grpc.Peer(&by)); err != nil {
		return
	}
	out.answered, out.hit, out.misrouted = true, flags.Value&flagHit != 0, flags.Value&flagOwned == 0
	for _, t := range c.clerk.Assignment().Tasks() {
		if by.Addr != nil && t.Address == by.Addr.String() {
			out.task = t.Name
		}
	}
}

// Flooded is what became of calls of one criticality while there were ten times as many.
type Flooded struct {
	Criticality string  `json:"criticality"`
	Calls       int64   `json:"calls"`
	Answered    float64 `json:"answered"` // share
}

// wantFlooded is what share of the most critical calls must be answered in the flood.
const wantFlooded = .9

// judgeFlood judges what became of the calls, in order of falling criticality.
func (s *Summary) judgeFlood(fail func(format string, args ...any)) {
	if len(s.Flooded) == 0 {
		fail("there was no flood")
		return
	}
	if most := s.Flooded[0]; most.Answered < wantFlooded {
		fail("in the flood %.3f of the %s calls were answered, at least %.1f is wanted", most.Answered, most.Criticality, wantFlooded)
	}
	for i, f := range s.Flooded[1:] {
		if before := s.Flooded[i]; f.Answered > before.Answered+.02 {
			fail("in the flood %.3f of the %s calls were answered and only %.3f of the %s ones", f.Answered, f.Criticality, before.Answered, before.Criticality)
		}
	}
}

func (s *Summary) floodText() string {
	var parts []string
	for _, f := range s.Flooded {
		parts = append(parts, fmt.Sprintf("%.1f%% of %d %s", 100*f.Answered, f.Calls, f.Criticality))
	}
	return fmt.Sprintf("%d times the calls for %s: answered %s\n", floodTimes, floodLasts, strings.Join(parts, ", "))
}
