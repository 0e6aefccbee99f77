package overload

// Priorities is how many priorities there are, from 0.
const Priorities = 4 * Cohorts

// Priority orders requests: by criticality, and within one by cohort. A task without room
// for all refuses from the bottom: the least critical, and of these the last cohorts.
type Priority uint16

// Priority is that of a request with these labels. What is not said counts as Critical and
// as the first cohort.
func (l Labels) Priority() Priority {
	c := l.Criticality
	if !c.Valid() {
		c = Critical
	}
	last := Priority(Cohorts - 1)
	if cohort, ok := l.Cohort(); ok {
		last -= Priority(cohort)
	}
	return Priority(c-Sheddable)*Cohorts + last
}

// Criticality is that of a priority.
func (p Priority) Criticality() Criticality {
	return Sheddable + Criticality(min(p, Priorities-1)/Cohorts)
}
