package overload

import "context"

// PressureKey is for contexts that are types of their own: the method Value answers it with
// what has a method Pressure() float64, if there is any.
type PressureKey struct{}

// Pressure is how near a request of the context's priority is to being refused by the task
// that works on it, 0 to 1, so that a handler can give a cheaper and worse answer before
// there is none (Site Reliability Engineering, chapter 22, "Load Shedding and Graceful
// Degradation"). It is 0 where there is no admission.
func Pressure(ctx context.Context) float64 {
	if p, ok := ctx.Value(PressureKey{}).(interface{ Pressure() float64 }); ok {
		return p.Pressure()
	}
	return 0
}
