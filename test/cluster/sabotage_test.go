//go:build sabotage

package cluster

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// TestPlanted plants bugs, and says at which seed each is found.
func TestPlanted(t *testing.T) {
	const most = 200
	for _, bug := range []string{"wrong-base", "late-report", "long-silence", "no-freeze", "no-thaw", "no-return", "unacknowledged", "stale-claims", "whole-shares"} {
		t.Run(bug, func(t *testing.T) {
			run := exec.Command(os.Args[0], "-test.run=^TestSeeds$", "-seed=1", "-seeds="+strconv.Itoa(most))
			run.Env = append(os.Environ(), "SLICER_SABOTAGE="+bug)
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("not found in %d seeds:\n%s", most, out)
			}
			first, what := most+1, ""
			for _, m := range regexp.MustCompile(`seed (\d+): (.*)`).FindAllStringSubmatch(string(out), -1) {
				if n, err := strconv.Atoi(m[1]); err == nil && n < first {
					first, what = n, m[2]
				}
			}
			if first > most {
				t.Fatalf("no seed is named:\n%s", out)
			}
			t.Logf("found at seed %d of %d: %s", first, most, what)
		})
	}
}
