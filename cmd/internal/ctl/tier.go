package ctl

import (
	"context"
	"fmt"
	"strings"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// throughView is the Distributor that was asked.
type throughView struct {
	Distributor string `json:"distributor"`
	// Tier is 1, or 2 of one that has its assignments from other Distributors.
	Tier uint32 `json:"tier"`
	// Upstreams are those that it is attached to just now; Downstreams those of the
	// second tier that are attached to it.
	Upstreams   []string `json:"upstreams,omitempty"`
	Downstreams []string `json:"downstreams,omitempty"`
}

// through asks the Distributor for its id and tier; nil when it does not say, as a Backup
// Distributor.
func (c *client) through(ctx context.Context) *throughView {
	r, err := call(ctx, c, slicerv1.NewRelayServiceClient(c.conn).Describe, &slicerv1.DescribeRequest{})
	if err != nil {
		return nil
	}
	v := &throughView{Distributor: r.DistributorId, Tier: r.Tier}
	for _, u := range r.Upstreams {
		v.Upstreams = append(v.Upstreams, u.Id)
	}
	for _, d := range r.Downstreams {
		v.Downstreams = append(v.Downstreams, d.Id)
	}
	return v
}

// describe is a line for people where there is something to say, or empty.
func (v *throughView) describe() string {
	switch {
	case v == nil || v.Tier < 2 && len(v.Downstreams) == 0:
		return ""
	case v.Tier < 2:
		return fmt.Sprintf("through distributor %s, upstream of %s", v.Distributor, strings.Join(v.Downstreams, " "))
	case len(v.Upstreams) == 0:
		return fmt.Sprintf("through distributor %s of the second tier, which reaches none of its upstreams", v.Distributor)
	}
	return fmt.Sprintf("through distributor %s of the second tier, with the upstreams %s", v.Distributor, strings.Join(v.Upstreams, " "))
}
