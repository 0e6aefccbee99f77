//go:build !race && (amd64 || arm64 || loong64 || mips64 || mips64le || ppc64 || ppc64le || riscv64 || s390x)

package clerk

// count adds to the cell of the core that the goroutine is pinned to: nothing else writes there,
// and a read of the word meanwhile gives what was there before or after
// (go.dev/ref/mem).
func count(cell *uint64, n uint64) { *cell += n }
