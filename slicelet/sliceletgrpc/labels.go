package sliceletgrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// labels are those of an RPC.
func (g *gate) labels(ctx context.Context, md metadata.MD) overload.Labels {
	l := g.slicelet.Labels(last(md, CriticalityHeader), last(md, CohortHeader))
	l.Customer = g.slicelet.CustomerOf(ctx, last(md, CustomerHeader))
	return l
}

// last is the last value of metadata, empty if there is none: what is nearest to the
// server has the last word.
func last(md metadata.MD, name string) string {
	v := md[name]
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}
