package sliceletgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// labels are those of an RPC.
func (g *gate) labels(ctx context.Context) overload.Labels {
	l := g.slicelet.Labels(last(ctx, CriticalityHeader), last(ctx, CohortHeader))
	l.Customer = g.slicelet.CustomerOf(ctx, last(ctx, CustomerHeader))
	return l
}

// last is the last value of metadata, empty if there is none: what is nearest to the
// server has the last word.
func last(ctx context.Context, name string) string {
	v := metadata.ValueFromIncomingContext(ctx, name)
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}
