//go:build !sabotage

package fanout

// Only the build tag sabotage can bring these about: the simulated cluster shows with
// them that it would notice.
const (
	oneDelta    = false // everybody gets the delta that most need, whatever they hold
	alwaysHeard = false // slicelets are never told that nobody hears them
)
