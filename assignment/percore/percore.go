// Package percore tells on which core a goroutine runs, so that counters of different cores share
// no cache line.
package percore

import _ "unsafe" // for go:linkname

// Pin keeps the goroutine on its core, that is on its P, until Unpin, and returns the P's
// number, from 0 and below the greatest GOMAXPROCS so far. Until then nothing else runs on that
// P, and the goroutine must not block: what it does there with memory of the P's own is done by
// one at a time. sync.Pool finds its memory by it; getting something from a sync.Pool and
// putting it back takes five times as long. Both functions are among those that the runtime
// keeps as they are for packages outside (go.dev/issue/67401).
//
//go:linkname Pin runtime.procPin
func Pin() int

// Unpin ends what Pin has begun.
//
//go:linkname Unpin runtime.procUnpin
func Unpin()
