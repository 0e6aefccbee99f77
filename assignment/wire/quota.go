package wire

import (
	"fmt"
	"math"
	"slices"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// MaxTaskCustomers is of how many customers a task's report says what they ask for, and
	// MaxCustomers of how many a Distributor does.
	MaxTaskCustomers, MaxCustomers = 256, 4096
)

// UseFromProto validates what customers ask for, of which there may be so many; nil is nothing.
// Names that cannot be customers' are left out.
func UseFromProto(m *slicerv1.CustomerUse, most int) (uses []assignment.CustomerUse, names []string, err error) {
	ids := m.GetCustomer()
	if len(ids) > most || len(m.GetName()) > most {
		return nil, nil, malformed("customers", &assignment.FieldError{Field: "customer", Value: max(len(ids), len(m.GetName())), Allowed: fmt.Sprintf("at most %d", most)})
	}
	if len(m.GetAsked()) != len(ids) || len(m.GetUsed()) != len(ids) {
		return nil, nil, malformed("customers", &assignment.FieldError{Field: "asked and used", Value: []int{len(m.GetAsked()), len(m.GetUsed())}, Allowed: fmt.Sprintf("one of each customer, of which there are %d", len(ids))})
	}
	for i, id := range ids {
		u := assignment.CustomerUse{Customer: id, Asked: float64(m.Asked[i]), Used: float64(m.Used[i])}
		if !rateOK(u.Asked) || !rateOK(u.Used) || i > 0 && ids[i-1] >= id {
			return nil, nil, malformed("customers", &assignment.FieldError{Field: "customer", Value: u, Allowed: "each once, in order, with rates of at least 0"})
		}
		uses = append(uses, u)
	}
	for _, name := range m.GetName() {
		if assignment.ValidCustomer(name) {
			names = append(names, name)
		}
	}
	return uses, names, nil
}

func rateOK(v float64) bool { return v >= 0 && v <= math.MaxFloat32 }

// UseToProto returns nil if nothing is asked for. The customers are in order.
func UseToProto(uses []assignment.CustomerUse, names []string) *slicerv1.CustomerUse {
	m := &slicerv1.CustomerUse{Name: names}
	for _, u := range uses {
		m.Customer = append(m.Customer, u.Customer)
		m.Asked = append(m.Asked, float32(min(u.Asked, MaxRate)))
		m.Used = append(m.Used, float32(min(u.Used, MaxRate)))
	}
	if len(m.Customer) == 0 {
		return nil
	}
	return m
}

// Quotas are how much of a job's limits may be used somewhere.
type Quotas struct {
	Limits assignment.Limits
	// Shares are load units a second, by customer.
	Shares map[uint64]float64
}

// QuotasFromProto validates quotas. Limits that are missing are those said before, and so are
// the shares if none is told. Before the first they are nil.
func QuotasFromProto(m *slicerv1.Quotas, before *Quotas) (*Quotas, error) {
	if len(m.GetCustomer()) > MaxCustomers || len(m.GetShare()) != len(m.GetCustomer()) {
		return nil, malformed("quotas", &assignment.FieldError{Field: "customer", Value: len(m.GetCustomer()), Allowed: fmt.Sprintf("at most %d, with as many shares, of which there are %d", MaxCustomers, len(m.GetShare()))})
	}
	q := new(Quotas)
	if before != nil {
		*q = *before
	}
	if m.GetLimits() != nil {
		l, err := LimitsFromProto(m.Limits)
		if err != nil {
			return nil, err
		}
		q.Limits = l
	}
	if len(m.GetCustomer()) > 0 {
		q.Shares = make(map[uint64]float64, len(m.Customer))
	}
	for i, id := range m.GetCustomer() {
		share := float64(m.Share[i])
		if !rateOK(share) {
			return nil, malformed("quotas", &assignment.FieldError{Field: "share", Value: share, Allowed: "at least 0"})
		}
		q.Shares[id] = share
	}
	return q, nil
}

// QuotasToProto has the customers in order. The limits are left out unless they are to be said.
func QuotasToProto(shares []assignment.CustomerShare, limits *assignment.Limits) *slicerv1.Quotas {
	m := new(slicerv1.Quotas)
	if limits != nil {
		if m.Limits = LimitsToProto(*limits); m.Limits == nil {
			m.Limits = new(slicerv1.Limits)
		}
	}
	slices.SortFunc(shares, func(a, b assignment.CustomerShare) int {
		if a.Customer < b.Customer {
			return -1
		}
		return 1
	})
	for _, s := range shares {
		m.Customer = append(m.Customer, s.Customer)
		m.Share = append(m.Share, float32(min(s.Share, MaxRate)))
	}
	return m
}
