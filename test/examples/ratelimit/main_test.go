package ratelimit

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, in a process that the benchmark has started, its part.
func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		if err := runPart(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
