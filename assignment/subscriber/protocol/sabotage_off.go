//go:build !sabotage

package protocol

// Only the build tag sabotage can bring this about: the simulated cluster shows with
// it that it would notice.
const staysAway = false // a subscriber of a Backup Distributor tries no Distributor any more
