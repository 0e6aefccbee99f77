package ctl

import slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"

// xdsView are the xDS clients at one Distributor; those that have asked for routes count
// among the clerks.
type xdsView struct {
	clientsView
	// Refused says why they are not served.
	Refused string `json:"refused,omitempty"`
}

func newXDS(all []*slicerv1.XdsClients) (out []xdsView) {
	for _, m := range all {
		out = append(out, xdsView{newClients(m), m.GetRefused()})
	}
	return out
}

func (v xdsView) describe() string {
	s := v.clientsView.describe("xDS")
	if v.Refused != "" {
		s += "; not served: " + v.Refused
	}
	return s
}
