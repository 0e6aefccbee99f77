package moved

import (
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRoute: a generation that is none, from the network, is not older than any.
func TestRoute(t *testing.T) {
	a := subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 10}, []assignment.Task{subscribertest.Task("a", 0)}, 0)
	for n, want := range map[int64]string{
		math.MinInt64: "unknown", -5: "unknown", 0: "unknown", 1: "older", 9: "older", 10: "same", 11: "newer", math.MaxInt64: "newer",
	} {
		if got := Route(n, a); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
		if got := Route(n, nil); got != "unknown" {
			t.Errorf("%d is %s where there is no assignment", n, got)
		}
	}
}
