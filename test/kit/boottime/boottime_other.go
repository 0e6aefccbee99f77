//go:build !linux

package boottime

import (
	"time"

	"github.com/slicer-project/slicer/lease"
)

// Now is lease.Boottime, which serves within one process: there is no judging here.
func Now() time.Duration { return lease.Boottime() }
