package ctl

import (
	"fmt"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// xdsView are the xDS clients at one Distributor; those that have asked for routes count
// among the clerks.
type xdsView struct {
	Distributor string `json:"distributor"`
	Clients     uint32 `json:"clients"`
	// Refusing are those that have refused the last answer of some type: nothing waits for
	// them.
	Refusing uint32 `json:"refusing"`
	// Acks and Nacks are counted since the job came to be served there.
	Acks          uint64 `json:"acks"`
	Nacks         uint64 `json:"nacks"`
	LastNack      string `json:"last_nack,omitempty"`
	LastNackAgeMS int64  `json:"last_nack_age_ms,omitempty"`
	// Refused says why they are not served.
	Refused string `json:"refused,omitempty"`
}

func newXDS(all []*slicerv1.XdsClients) (out []xdsView) {
	for _, m := range all {
		out = append(out, xdsView{
			Distributor: m.GetDistributorId(), Clients: m.GetClients(), Refusing: m.GetRefusing(), Acks: m.GetAcks(), Nacks: m.GetNacks(),
			LastNack: m.GetLastNack(), LastNackAgeMS: m.GetLastNackAgeMs(), Refused: m.GetRefused(),
		})
	}
	return out
}

// describe is one line for people. What the client wrote is quoted: it may hold anything.
func (v xdsView) describe() string {
	s := fmt.Sprintf("xDS at %s: %s, %s, %s", v.Distributor,
		plural(int(v.Clients), "client"), plural(int(v.Acks), "ack"), plural(int(v.Nacks), "nack"))
	if v.Refusing > 0 {
		s += fmt.Sprintf(", %d refusing now", v.Refusing)
	}
	if v.Nacks > 0 {
		s += fmt.Sprintf("; last nack %s ago: %q", age(time.Duration(v.LastNackAgeMS)*time.Millisecond), v.LastNack)
	}
	if v.Refused != "" {
		s += "; not served: " + v.Refused
	}
	return s
}
