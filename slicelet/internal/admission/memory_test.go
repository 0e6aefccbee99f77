package admission

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMemory: what lives, of the limit.
func TestMemory(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	debug.SetMemoryLimit(1 << 30)
	full := Memory()
	if full == nil {
		t.Fatal("there is a limit and no signal")
	}
	runtime.GC()
	before := full()
	held := make([]byte, 100<<20)
	runtime.GC()
	if more := full() - before; more < .1 || more > .12 {
		t.Errorf("100 MiB more of 1 GiB are %.3f of nine tenths of it", more)
	}
	runtime.KeepAlive(held)
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]float64{"max\n": math.MaxInt64, "": math.MaxInt64, "0": math.MaxInt64, "-5": math.MaxInt64, "1073741824\n": 1 << 30, "99999999999999999999": math.MaxInt64} {
		if got := parseLimit(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// BenchmarkMemory is paid 20 times a second.
func BenchmarkMemory(b *testing.B) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	debug.SetMemoryLimit(1 << 30)
	full := Memory()
	for b.Loop() {
		full()
	}
}
