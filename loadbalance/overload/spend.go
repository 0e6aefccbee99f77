package overload

import "context"

// SpendKey is for contexts that are types of their own: the method Value answers it with what
// has a method Spend(float64), if there is any.
type SpendKey struct{}

// Spend says what the request of a handler's context has cost its customer, or how much more,
// in units of the job's load metric: CPU seconds, or custom units. It may be called several
// times. A handler that does not call it is charged by the time that it works in jobs that
// are balanced by CPU, and otherwise 1. In jobs balanced by requests each costs 1, and in a
// context of no handler there is nothing to charge: Spend does nothing.
func Spend(ctx context.Context, units float64) {
	if s, ok := ctx.Value(SpendKey{}).(interface{ Spend(units float64) }); ok {
		s.Spend(units)
	}
}
