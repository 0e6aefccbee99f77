package admission

import (
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// memoryTarget is the share of the memory limit that is as full as a task may be.
const memoryTarget = .9

// cgroupLimit is where Linux says how much memory the process's container may have.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// Memory is a signal of how full memory is: what the last garbage collection found to live,
// and stacks, of GOMEMLIMIT or of the container's limit, whichever is less. It is nil if
// there is no limit.
func Memory() func() float64 {
	limit := float64(math.MaxInt64)
	if n := debug.SetMemoryLimit(-1); n > 0 {
		limit = float64(n)
	}
	if text, err := os.ReadFile(cgroupLimit); err == nil {
		limit = min(limit, parseLimit(string(text)))
	}
	if limit == math.MaxInt64 {
		return nil
	}
	return func() float64 {
		of := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(of)
		used := 0.
		for _, s := range of {
			if s.Value.Kind() == metrics.KindUint64 {
				used += float64(s.Value.Uint64())
			}
		}
		return used / (memoryTarget * limit)
	}
}

// parseLimit reads bytes; what is no number above 0, such as max, is no limit.
func parseLimit(text string) float64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil || n == 0 {
		return math.MaxInt64
	}
	return float64(n)
}
