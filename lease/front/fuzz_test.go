package front

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// FuzzMemory decodes what a slicelet says that it remembers: it is refused, or within bounds.
func FuzzMemory(f *testing.F) {
	seed := &slicerv1.RenewSessionRequest{Session: make([]byte, 16), Revision: 9, Jobs: []*slicerv1.SessionMemory{{
		Job: "job", Revision: 8, Fingerprint: 7,
		Guard:  &slicerv1.Holder{Claim: &slicerv1.Claim{To: 1}, Created: 5},
		Bridge: &slicerv1.Holder{Claim: &slicerv1.Claim{From: 1, To: 2}, Created: 6},
	}}}
	data, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var req slicerv1.RenewSessionRequest
		if proto.Unmarshal(data, &req) != nil {
			return
		}
		jobs, _, err := memory(&req)
		if err != nil {
			return
		}
		if len(jobs) != len(req.GetJobs()) || len(jobs) > lease.MaxJobs {
			t.Fatalf("%d jobs of %d were taken", len(jobs), len(req.GetJobs()))
		}
		for _, j := range jobs {
			for _, h := range []struct {
				claim   lease.Claim
				created int64
			}{{j.Guard.Claim, j.Guard.Created}, {j.Bridge.Claim, j.Bridge.Created}} {
				if (h.claim == lease.Claim{}) != (h.created == 0) || h.created > req.GetRevision() || h.claim.To < h.claim.From {
					t.Fatalf("%+v was taken", j)
				}
			}
		}
	})
}
