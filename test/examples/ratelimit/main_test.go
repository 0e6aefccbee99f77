package ratelimit

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/test/kit/process"
)

// TestMain runs the tests, or, in a process that the benchmark has started, a frontend.
func TestMain(m *testing.M) {
	if work := os.Getenv(frontendVariable); work != "" {
		if err := runFrontend(work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(tests{m})
}

type tests struct{ m *testing.M }

func (t tests) Run() int { return process.Main(t.m) }
