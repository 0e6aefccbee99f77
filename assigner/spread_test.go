package assigner

import (
	"testing"
	"testing/synctest"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Distributors are told over how many of them a job's subscribers could be spread, and
// how many each would have: those with none count, those that have gone do not, and while
// one is not heard none is told anything.
func TestCrowd(t *testing.T) {
	virtually(t, func(t *testing.T, start func(Config) *node) {
		n := start(Config{})
		n.put(&slicerv1.JobConfig{Name: "job"})
		d1, d2 := n.attach("d1"), n.attach("d2")
		for _, d := range []*raw{d1, d2} {
			d.preferred("job", "a1")
			d.reports("job", true)
		}
		d1.want(&slicerv1.Want{Job: "job"})
		// told lets the Distributors that speak be heard for some seconds.
		told := func(distributors, mean uint32, who ...*raw) (statuses int) {
			t.Helper()
			for range 4 {
				for _, d := range who {
					d.reports("job", false)
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
			d1.mu.Lock()
			defer d1.mu.Unlock()
			if st := d1.statuses["job"]; st.GetDistributors() != distributors || st.GetMeanSubscribers() != mean {
				t.Errorf("told of %d with %d each, not %d with %d", st.GetDistributors(), st.GetMeanSubscribers(), distributors, mean)
			}
			return d1.counts["job"]
		}
		told(0, 0, d1, d2) // d1 has not said what it has
		d1.acks(&slicerv1.Acks{Job: "job", Clerks: 30, Slicelets: 1})
		before := told(2, 16, d1, d2)
		d1.acks(&slicerv1.Acks{Job: "job", Clerks: 31, Slicelets: 1})
		d1.acks(&slicerv1.Acks{Job: "job", Clerks: 32, Slicelets: 1})
		if n := told(2, 16, d1, d2); n != before {
			t.Errorf("%d statuses for one more clerk", n-before)
		}
		d2.acks(&slicerv1.Acks{Job: "job", Clerks: 67})
		told(2, 50, d1, d2)
		told(0, 0, d1)
		told(2, 50, d1, d2)
		d2.acks(&slicerv1.Acks{Job: "job", Clerks: 1<<32 - 1})
		told(2, 1<<24, d1, d2)
		d2.close()
		told(1, 33, d1)
	})
}
