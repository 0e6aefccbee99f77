package assignment

import "github.com/cespare/xxhash/v2"

// Criticality says how bad it is if a request fails. A task without room for all serves
// the most critical (Site Reliability Engineering, O'Reilly 2016, chapter 21,
// "Criticality"). 0 is none: the job's default holds.
type Criticality uint8

const (
	// Sheddable requests may often fail in part, and now and then all of them.
	Sheddable Criticality = iota + 1
	// SheddablePlus requests may fail in part: batch work, which is tried again after
	// minutes or hours.
	SheddablePlus
	// Critical requests have an effect for users if they fail. Provision for these, and
	// for those above.
	Critical
	// CriticalPlus requests have a grave effect if they fail.
	CriticalPlus
)

const criticalities = "critical_plus, critical, sheddable_plus or sheddable"

var criticalityNames = [...]string{"", Sheddable: "sheddable", SheddablePlus: "sheddable_plus", Critical: "critical", CriticalPlus: "critical_plus"}

// String is critical_plus, critical, sheddable_plus or sheddable, and empty for none and
// for what does not exist.
func (c Criticality) String() string {
	if !c.Valid() {
		return ""
	}
	return criticalityNames[c]
}

// Valid reports whether c is one of the four.
func (c Criticality) Valid() bool { return c >= Sheddable && c <= CriticalPlus }

// ParseCriticality reads what String prints, but not the empty text.
func ParseCriticality(s string) (Criticality, error) {
	for c := Sheddable; c <= CriticalPlus; c++ {
		if s == criticalityNames[c] {
			return c, nil
		}
	}
	return 0, &FieldError{"criticality", s, criticalities}
}

// MaxCustomerLen is the most bytes that the name of a customer may have: what requests are
// charged to.
const MaxCustomerLen = 128

// CustomerID stands for the name of a customer in what tasks report: its XXH64.
func CustomerID(name string) uint64 { return xxhash.Sum64String(name) }

// ValidCustomer reports whether a name can be a customer's: 1 to MaxCustomerLen printable
// ASCII characters without space.
func ValidCustomer(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' {
			return false
		}
	}
	return name != "" && len(name) <= MaxCustomerLen
}
