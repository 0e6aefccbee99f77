//go:build !sabotage

package membership

// Only the build tag sabotage can bring these about: the simulated cluster shows with
// them that it would notice.
const (
	lateRevives = false // a report of a dead task revives it, however late it comes
	timeouts    = 1     // for how many heartbeat timeouts a task may be silent
	neverThaws  = false // a freeze lasts until the tasks that vanished return
)
