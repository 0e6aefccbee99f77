package slicelet

import _ "unsafe" // for go:linkname

// procPin keeps the goroutine on its core, that is on its P, whose number it
// returns. sync.Pool finds its memory by it; getting something from a sync.Pool and
// putting it back takes five times as long. Both functions are among those that
// the runtime keeps as they are for packages outside (go.dev/issue/67401).
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
