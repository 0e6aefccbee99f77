//go:build !sabotage

package lease

// Only the build tag sabotage can bring these about: tests show with them that
// they would notice, and what the bridge is good for.
const (
	noDeadline = false // beliefs never look at the clock
	noBridge   = false // the guard is recalled and rewritten without one
)
