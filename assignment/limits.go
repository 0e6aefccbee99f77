package assignment

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxLimits is how many customers may have a limit of their own.
	MaxLimits = 1000
	// MaxLimitRate is the highest rate of a limit.
	MaxLimitRate = 1e12
)

// Limit is how much of a job one customer may use.
type Limit struct {
	// Rate is in units of the job's load metric a second, over all tasks: above 0, to
	// MaxLimitRate. 0 stands for no limit.
	Rate float64
	// MaxCriticality is the highest criticality that its requests may have: what claims
	// more counts as this. 0 stands for any.
	MaxCriticality Criticality
}

// Limits are those of a job's customers. They do not change, and are equal (==) when they say
// the same. The zero value limits nothing.
type Limits struct {
	// text has a line for each customer, in order of name: its name, rate and
	// criticality, with a space after each. That of the others, if there is one, comes
	// first, without a name.
	text string
}

// LimitsOf are the limits of the customers named, and of each other customer. A limit that
// limits nothing is still that customer's, in place of others. The error is a *FieldError
// whose field is called as in a job file.
func LimitsOf(others Limit, customers map[string]Limit) (l Limits, err error) {
	if len(customers) > MaxLimits {
		return Limits{}, &FieldError{"limits.customers", len(customers), fmt.Sprintf("at most %d customers", MaxLimits)}
	}
	var b strings.Builder
	if others != (Limit{}) {
		err = writeLimit(&b, "limits.default", "", others)
	}
	for _, name := range slices.Sorted(maps.Keys(customers)) {
		if err == nil && !ValidCustomer(name) {
			err = &FieldError{"customer in limits", name, fmt.Sprintf("1 to %d printable ASCII characters without space", MaxCustomerLen)}
		}
		if err == nil {
			err = writeLimit(&b, "limits.customers."+name, name, customers[name])
		}
	}
	if err != nil {
		return Limits{}, err
	}
	return Limits{b.String()}, nil
}

func writeLimit(b *strings.Builder, field, name string, l Limit) error {
	if !within(l.Rate, 0, MaxLimitRate) {
		return &FieldError{field + ".rate", l.Rate, fmt.Sprintf("above 0, to %g units of load a second", float64(MaxLimitRate))}
	}
	if l.MaxCriticality != 0 && !l.MaxCriticality.Valid() {
		return &FieldError{field + ".max_criticality", uint8(l.MaxCriticality), criticalities}
	}
	fmt.Fprintf(b, "%s %s %d \n", name, strconv.FormatFloat(l.Rate, 'g', -1, 64), l.MaxCriticality)
	return nil
}

// Equal is ==.
func (l Limits) Equal(m Limits) bool { return l == m }

// All are the customers that have a limit of their own, in order of name.
func (l Limits) All() iter.Seq2[string, Limit] {
	return func(yield func(string, Limit) bool) {
		for line := range strings.Lines(l.text) {
			if name, x := readLimit(line); name != "" && !yield(name, x) {
				return
			}
		}
	}
}

// Others is the limit of each customer that has none of its own.
func (l Limits) Others() (x Limit) {
	if strings.HasPrefix(l.text, " ") {
		line, _, _ := strings.Cut(l.text, "\n")
		_, x = readLimit(line)
	}
	return x
}

// Of is the limit of a customer; nothing limits requests without one. It goes through all of
// them.
func (l Limits) Of(customer string) Limit {
	if customer == "" {
		return Limit{}
	}
	for name, x := range l.All() {
		if name == customer {
			return x
		}
	}
	return l.Others()
}

func readLimit(line string) (name string, l Limit) {
	f := strings.Split(line, " ")
	l.Rate, _ = strconv.ParseFloat(f[1], 64)
	c, _ := strconv.Atoi(f[2])
	l.MaxCriticality = Criticality(c)
	return f[0], l
}

// CustomerUse is what a customer asks for and gets, units of load a second.
type CustomerUse struct {
	Customer    uint64 // CustomerID
	Asked, Used float64
}

// CustomerShare is how much of its limit a customer may use somewhere, units of load a
// second.
type CustomerShare struct {
	Customer uint64 // CustomerID
	Share    float64
}
