//go:build linux && system

package lease

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBoottimeAfterSuspend runs TestBoottime in a time namespace in which the
// machine looks as if it had been suspended for ten days: CLOCK_BOOTTIME is ahead of
// CLOCK_MONOTONIC. It needs root, and unshare of util-linux.
func TestBoottimeAfterSuspend(t *testing.T) {
	const days = "864000"
	cmd := exec.Command("unshare", "--time", "--boottime", days, "--fork", os.Args[0], "-test.run", "^TestBoottime$", "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestBoottime") {
		t.Errorf("%v\n%s", err, out)
	}
}
