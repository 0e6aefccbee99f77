//go:build !sabotage

package membership

// Only the build tag sabotage can bring this about: the simulated cluster shows with
// it that it would notice.
const lateRevives = false // a report of a dead task revives it, however late it comes
