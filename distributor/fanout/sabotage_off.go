//go:build !sabotage

package fanout

// Only the build tag sabotage can bring these about: the simulated cluster shows with
// them that it would notice.
const (
	oneDelta           = false // every subscriber gets the delta that most need, whatever it holds
	alwaysAcknowledged = false // slicelets are never told that their Distributor is not acknowledged
	keepClaims         = false // what is asked of tasks that are gone goes on to count
	wholeShares        = false // each task may use all that all of them may
)
