//go:build !sabotage

package distributor

// Only the build tag sabotage can bring this about: the simulated cluster shows with
// it that it would notice.
const oneDelta = false // everybody gets the delta that most need, whatever they hold
