//go:build !steppedclock

package assigner

import "time"

// wall is the wall clock's time. The build tag steppedclock has tests step it.
func wall(t time.Time) time.Time { return t }
