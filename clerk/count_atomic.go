//go:build race || !(amd64 || arm64 || loong64 || mips64 || mips64le || ppc64 || ppc64le || riscv64 || s390x)

package clerk

import "sync/atomic"

// count is atomic where words have 32 bits, and for the race detector, which does not see that
// the goroutine is pinned.
func count(cell *uint64, n uint64) { atomic.AddUint64(cell, n) }
