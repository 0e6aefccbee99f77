package slicelet

import (
	"bytes"
	"os"
	"strconv"
)

// processMemory is the process's resident memory in bytes, 0 if it is not known. It takes
// some microseconds.
func processMemory() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(b)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 48)
	if err != nil {
		return 0
	}
	return float64(pages) * float64(os.Getpagesize())
}
