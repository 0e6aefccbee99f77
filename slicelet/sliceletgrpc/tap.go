package sliceletgrpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
)

// tap is where RPCs are refused that there is no room for: gRPC calls it before it decodes
// a message and before it starts a goroutine, so that a refusal costs least. It is called
// under the lock of the connection.
func (g *gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if ofGRPC(info.FullMethodName) {
		return ctx, nil
	}
	now := time.Now()
	from := g.load.connectionOf(ctx)
	c := from.call()
	c.Context, c.gate, c.labels, c.from = ctx, g, g.labels(ctx, info.Header), from
	c.refused = g.room(ctx, info.Header, now, c)
	// gRPC holds on to the context of an RPC that the tap refuses until its deadline.
	if by, ok := ctx.Deadline(); c.refused != nil && (!ok || by.Sub(now) <= longestHeld) {
		g.attempt(info.Header, now, from)
		refused := c.refused
		from.spare(c)
		return ctx, refused
	}
	c.tapped = c.refused == nil
	return c, nil
}

// outdated is the error of an RPC that tap has refused, or that there is no room for any more.
func (g *gate) outdated(ctx context.Context, md metadata.MD, now time.Time, c *call) error {
	if c.refused != nil || !c.tapped || !g.slicelet.Admission().Outdated(now, c.labels) {
		return c.refused
	}
	c.charge.Cancel()
	return g.shed(md, c)
}

// room is the error of an RPC that there is no room for, or that its customer's limit does
// not let in.
func (g *gate) room(ctx context.Context, md metadata.MD, now time.Time, c *call) error {
	a := slicelet.Arrival{Labels: c.labels, StandsFor: overload.ParseStandsFor(last(md, StandsForHeader)), Peer: c.from.number()}
	if !g.slicelet.Admission().Charge(now, &c.charge, &a) {
		return g.outOfQuota(a.Labels.Customer)
	}
	c.labels = a.Labels
	if a.StandsFor > 1 || g.slicelet.Admission().HeavyKeys() {
		a.Key, a.Keyed, _ = g.keyOf(md)
	}
	switch g.slicelet.Admission().Admit(ctx, now, a) {
	case overload.Late:
		c.charge.Cancel()
		return errLate
	case overload.Shed:
		c.charge.Cancel()
		return g.shed(md, c)
	}
	return nil
}

// longestHeld is the longest deadline that the tap refuses. An RPC with a longer one is
// refused by the interceptor, after which gRPC lets go of it.
const longestHeld = 5 * time.Second

var errLate = status.Error(codes.DeadlineExceeded, "the RPC could not be answered in time, so it was not begun")

// shed counts an RPC that there is no room for, if its key is in the metadata, and says
// whether another task may have some. A task that does not own the key says that.
func (g *gate) shed(md metadata.MD, c *call) error {
	k, keyed, err := g.keyOf(md)
	switch {
	case err != nil:
		return err
	case keyed:
		keyed := call{gate: g}
		if err := g.admit(c.from.routedBy(generationIn(md)), &keyed, "", k, true); err != nil {
			return err
		}
		return g.full(g.slicelet.Shed(keyed.handle, c.labels))
	}
	return g.full(g.cfg.Key == nil && g.slicelet.Elsewhere())
}

// callOf is what tap has made of an RPC, or else a new one. Who is charged is decided here
// again, by all that interceptors have put into the context. An RPC that has not come by tap,
// as those through grpc.Server.ServeHTTP, is refused here if there is no room for it.
func (g *gate) callOf(ctx context.Context, md metadata.MD, method string, now time.Time) (*call, context.Context) {
	if c, ok := ctx.Value(callOfContext{}).(*call); ok && c.gate == g {
		g.recharge(ctx, md, now, c)
		return c, ctx
	}
	c := &call{Context: ctx, gate: g, labels: g.labels(ctx, md), from: g.load.connectionOf(ctx)}
	if !g.cfg.NoTap && !ofGRPC(method) {
		c.refused = g.room(ctx, md, now, c)
	}
	return c, c
}

// recharge charges an RPC to another customer if what interceptors have put into the context
// says so.
func (g *gate) recharge(ctx context.Context, md metadata.MD, now time.Time, c *call) {
	was := c.labels.Customer
	c.labels = overload.LabelsOf(ctx)
	if customer := g.slicelet.CustomerOf(ctx, last(md, CustomerHeader)); c.labels.Customer == was {
		c.labels.Customer = customer
	}
	if c.labels.Customer == was || c.refused != nil {
		return
	}
	c.charge.Cancel()
	a := slicelet.Arrival{Labels: c.labels}
	if !g.slicelet.Admission().Charge(now, &c.charge, &a) {
		c.refused = g.outOfQuota(a.Labels.Customer)
	}
	c.labels = a.Labels
}

// ofGRPC reports whether a method is of one of gRPC's own services, which are always served.
func ofGRPC(method string) bool {
	for _, own := range [...]string{"/grpc.health.", "/grpc.reflection.", "/grpc.channelz."} {
		if strings.HasPrefix(method, own) {
			return true
		}
	}
	return false
}
