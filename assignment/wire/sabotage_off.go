//go:build !sabotage

package wire

// Only the build tag sabotage can bring this about: the simulated cluster shows with
// it that it would notice.
const anyBase = false // deltas are applied to whatever is at hand, and the result is believed
