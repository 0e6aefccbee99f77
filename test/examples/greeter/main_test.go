package greeter

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, in a process that a test has started, a server.
func TestMain(m *testing.M) {
	if task := os.Getenv(taskVariable); task != "" {
		if err := serve(task, os.Getenv(slicerVariable)); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
