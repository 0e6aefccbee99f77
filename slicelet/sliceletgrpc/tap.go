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
	if strings.HasPrefix(info.FullMethodName, "/grpc.") {
		return ctx, nil
	}
	now := time.Now()
	left := time.Duration(0)
	if by, ok := ctx.Deadline(); ok {
		if left = by.Sub(now); left == 0 {
			left = -1
		}
	}
	l := g.slicelet.Labels(ctx, slicelet.Claims{
		Criticality: lastOf(info.Header, CriticalityHeader), Cohort: lastOf(info.Header, CohortHeader), Customer: lastOf(info.Header, CustomerHeader),
	})
	switch g.slicelet.Admit(now, l, left) {
	case overload.Late:
		g.attempt(ctx, now)
		return ctx, errLate
	case overload.Shed:
		g.attempt(ctx, now)
		return ctx, g.shed(ctx)
	}
	return &call{Context: ctx, gate: g, labels: l}, nil
}

var errLate = status.Error(codes.DeadlineExceeded, "the RPC could not be answered in time, so it was not begun")

// shed counts an RPC that there is no room for, if its key is in the metadata, and says
// whether another task may have some.
func (g *gate) shed(ctx context.Context) error {
	k, keyed, err := g.keyOf(ctx)
	switch {
	case err != nil:
		return err
	case keyed:
		h := g.slicelet.HandleSliceKey(k)
		h.Shed()
		return g.full(h.Elsewhere())
	}
	return g.full(g.cfg.Key == nil && g.slicelet.Elsewhere())
}

// lastOf is last of metadata.
func lastOf(md metadata.MD, name string) string {
	v := md[name]
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}

// callOf is what tap has made of an RPC, or else a new one.
func (g *gate) callOf(ctx context.Context) (*call, context.Context) {
	if c, ok := ctx.Value(callOfContext{}).(*call); ok && c.gate == g {
		return c, ctx
	}
	c := &call{Context: ctx, gate: g, labels: g.labels(ctx)}
	return c, c
}
