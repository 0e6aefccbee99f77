package lease

import (
	"testing"
	"time"
)

// A deadline that has passed, before it is extended or while it is, is never extended:
// whatever read the clock then has found nothing to believe in.
func TestTermIsNotRevived(t *testing.T) {
	const deadline, later = 10 * time.Second, 15 * time.Second
	for _, c := range []struct {
		what  string
		reads []time.Duration // of the clock, during extend
		want  bool
	}{
		{"before the deadline", []time.Duration{8 * time.Second, 9 * time.Second}, true},
		{"after it", []time.Duration{11 * time.Second, 11 * time.Second}, false},
		{"at it", []time.Duration{deadline, deadline}, false},
		{"so close before it that another goroutine may have found it passed", []time.Duration{deadline - 40*time.Microsecond, deadline}, false},
		{"as it comes so close", []time.Duration{9 * time.Second, deadline - 40*time.Microsecond}, false},
		{"as it passes", []time.Duration{9 * time.Second, 11 * time.Second}, false},
	} {
		reads := c.reads
		n := &term{clock: func() time.Duration {
			now := reads[0]
			if len(reads) > 1 {
				reads = reads[1:]
			}
			return now
		}}
		n.deadline.Store(int64(deadline))
		if got := n.extend(later); got != c.want || n.valid() != c.want {
			t.Errorf("extended %s: %t, and valid afterwards: %t; want %t", c.what, got, n.valid(), c.want)
		}
	}
}
