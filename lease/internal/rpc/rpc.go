// Package rpc is what all servers of LeaseService share: between messages and the
// nouns of package lease.
package rpc

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Claim decodes and checks a claim in a job.
func Claim(job string, c *slicerv1.Claim) (lease.Claim, error) {
	if err := assignment.ValidateJobName(job); err != nil {
		return lease.Claim{}, err
	}
	from, to := assignment.Generation(c.GetFrom()), assignment.Generation(c.GetTo())
	if from < 0 || to <= from || to > assignment.MaxGeneration {
		return lease.Claim{}, &assignment.FieldError{Field: "claim", Value: fmt.Sprintf("%d to %d", from, to), Allowed: "generations, to after from"}
	}
	return lease.Claim{From: from, To: to}, nil
}

// Records encodes what readers act on.
func Records(s lease.Seen) *slicerv1.LeaseRecords {
	return &slicerv1.LeaseRecords{
		Revision: s.Revision,
		Guard:    int64(s.Guard.Generation), GuardOpen: s.Guard.Open,
		BridgeFrom: int64(s.Bridge.From), BridgeTo: int64(s.Bridge.To), BridgeOpen: s.Bridge.Open,
	}
}
