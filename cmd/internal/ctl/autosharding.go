package ctl

import (
	"fmt"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// clientsView are the clients of another maker's protocol at one Distributor, and what they say
// to what they are sent.
type clientsView struct {
	Distributor string `json:"distributor"`
	Clients     uint32 `json:"clients"`
	// Refusing are those whose last answer, or that of some type, was a refusal: nothing waits
	// for them.
	Refusing uint32 `json:"refusing"`
	// Acks and Nacks are counted since the job came to be served there.
	Acks          uint64 `json:"acks"`
	Nacks         uint64 `json:"nacks"`
	LastNack      string `json:"last_nack,omitempty"`
	LastNackAgeMS int64  `json:"last_nack_age_ms,omitempty"`
}

func newClients(m interface {
	GetDistributorId() string
	GetClients() uint32
	GetRefusing() uint32
	GetAcks() uint64
	GetNacks() uint64
	GetLastNack() string
	GetLastNackAgeMs() int64
}) clientsView {
	return clientsView{
		Distributor: m.GetDistributorId(), Clients: m.GetClients(), Refusing: m.GetRefusing(), Acks: m.GetAcks(), Nacks: m.GetNacks(),
		LastNack: m.GetLastNack(), LastNackAgeMS: m.GetLastNackAgeMs(),
	}
}

// describe is one line for people. What the client wrote is quoted: it may hold anything.
func (v clientsView) describe(protocol string) string {
	s := fmt.Sprintf("%s at %s: %s, %s, %s", protocol, v.Distributor,
		plural(int(v.Clients), "client"), plural(int(v.Acks), "ack"), plural(int(v.Nacks), "nack"))
	if v.Refusing > 0 {
		s += fmt.Sprintf(", %d refusing now", v.Refusing)
	}
	if v.Nacks > 0 {
		s += fmt.Sprintf("; last nack %s ago: %q", age(time.Duration(v.LastNackAgeMS)*time.Millisecond), v.LastNack)
	}
	return s
}

// autoshardingView are the clients of gRPC's auto-sharding protocol at one
// Distributor; they count among the clerks.
type autoshardingView struct {
	clientsView
	// Remarks are acknowledgements with one.
	Remarks         uint64 `json:"remarks,omitempty"`
	LastRemark      string `json:"last_remark,omitempty"`
	LastRemarkAgeMS int64  `json:"last_remark_age_ms,omitempty"`
}

func newAutosharding(all []*slicerv1.AutoshardingClients) (out []autoshardingView) {
	for _, m := range all {
		out = append(out, autoshardingView{newClients(m), m.GetRemarks(), m.GetLastRemark(), m.GetLastRemarkAgeMs()})
	}
	return out
}

func (v autoshardingView) describe() string {
	s := v.clientsView.describe("gRPC auto-sharding")
	if v.Remarks > 0 {
		s += fmt.Sprintf("; %s, the last %s ago: %q", plural(int(v.Remarks), "remark"), age(time.Duration(v.LastRemarkAgeMS)*time.Millisecond), v.LastRemark)
	}
	return s
}
