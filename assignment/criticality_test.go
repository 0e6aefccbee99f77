package assignment

import (
	"errors"
	"strings"
	"testing"
)

func TestCriticality(t *testing.T) {
	for c := Sheddable; c <= CriticalPlus; c++ {
		if got, err := ParseCriticality(c.String()); err != nil || got != c || !c.Valid() {
			t.Errorf("%d: %v, %v", c, got, err)
		}
	}
	for _, c := range []Criticality{0, CriticalPlus + 1, 255} {
		if c.Valid() || c.String() != "" {
			t.Errorf("%d is %q", c, c)
		}
	}
	for _, s := range []string{"", "Critical", "critical ", "high"} {
		var wrong *FieldError
		if _, err := ParseCriticality(s); !errors.As(err, &wrong) || wrong.Field != "criticality" {
			t.Errorf("%q: %v", s, err)
		}
	}
	if !(Sheddable < SheddablePlus && SheddablePlus < Critical && Critical < CriticalPlus) {
		t.Error("the order is another")
	}
}

func TestValidCustomer(t *testing.T) {
	for _, name := range []string{"a", "spiffe://corp/ns/cache", strings.Repeat("~", MaxCustomerLen)} {
		if !ValidCustomer(name) {
			t.Errorf("%q is not allowed", name)
		}
	}
	for _, name := range []string{"", " ", "a b", "é", "a\n", strings.Repeat("a", MaxCustomerLen+1)} {
		if ValidCustomer(name) {
			t.Errorf("%q is allowed", name)
		}
	}
}
