//go:build !sabotage

package generate

// Only the build tag sabotage can bring this about: the simulated cluster shows with
// it that it would notice.
const deafToFreeze = false // rounds are held although the job is frozen
