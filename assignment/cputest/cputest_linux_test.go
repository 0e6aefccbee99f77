package cputest_test

import (
	"os"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/cputest"
)

// TestUsed: both ways to ask tell what this process uses, and the one by its number no less than
// what its threads have used that still run.
func TestUsed(t *testing.T) {
	own := cputest.Own()
	of, err := cputest.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for cputest.Own() < own+20*time.Millisecond { // until it has
	}
	after, err := cputest.Of(os.Getpid())
	if used := after - of; err != nil || used < 15*time.Millisecond {
		t.Errorf("%s of 20ms, %v", used, err)
	}
	if most := cputest.OwnMost(); most < 1<<20 {
		t.Errorf("%d bytes resident at most", most)
	}
	if _, err := cputest.Of(1 << 30); err == nil {
		t.Error("no error for a process that is not there")
	}
}
