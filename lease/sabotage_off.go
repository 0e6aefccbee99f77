//go:build !sabotage

package lease

// noDeadline stands for a belief that never looks at the clock. Only the build
// tag sabotage can bring that about: tests show with it that they would notice.
const noDeadline = false
