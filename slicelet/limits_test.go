package slicelet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// letIn is how many of 100 requests a second of a customer are let in, a second.
func letIn(s *Slicelet, customer string) float64 {
	n := 0
	for i := range 3000 {
		time.Sleep(10 * time.Millisecond)
		var c Charge
		r := Arrival{Labels: overload.Labels{Criticality: assignment.Critical, Customer: customer}}
		if s.Admission().Charge(time.Now(), &c, &r) && i >= 1000 {
			n++
			c.Done(0)
		}
	}
	return float64(n) / 20
}

func limitOf(rate float64) *slicerv1.Limits {
	return &slicerv1.Limits{Customers: []*slicerv1.Limit{{Customer: "batch", Rate: rate}}}
}

// TestLimitsWithParts: of a job of ten tasks of which the slicelet is sent its part alone, it holds
// customers to a tenth of their limits before it is told more.
func TestLimitsWithParts(t *testing.T) {
	for _, parts := range []bool{false, true} {
		t.Run(fmt.Sprintf("parts=%v", parts), func(t *testing.T) {
			sendParts = parts
			defer func() { sendParts = false }()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, nil)
				defer c.stop()
				self, err := wire.TaskFromProto(c.me)
				if err != nil {
					t.Fatal(err)
				}
				tasks, owners := []assignment.Task{self}, []uint32{0}
				for i := uint32(1); i < 10; i++ {
					tasks, owners = append(tasks, subscribertest.Task(fmt.Sprint("other-", i), i)), append(owners, i)
				}
				c.server.Put(subscribertest.Equal(t, nil, assignment.Header{Job: "job", StoreID: 1, Generation: 5}, tasks, owners...))
				c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 1000, Limited: true})
				c.server.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{Limits: limitOf(200)}}})
				synctest.Wait()
				if got := c.s.Assignment().Part() != ""; got != parts {
					t.Fatalf("it has a part: %v", got)
				}
				if got := letIn(c.s, "batch"); got < 18 || got > 22 {
					t.Errorf("of a limit of 200 for ten tasks %.1f requests a second are let in, want 20", got)
				}
			})
		})
	}
}

// TestLimitsOfBackup: a task that starts while no Distributor can be reached holds customers to an
// equal part of their limits, as a Backup Distributor says them. One that has shares keeps these,
// and they become old.
func TestLimitsOfBackup(t *testing.T) {
	backupWith := func(c *cluster, rate float64) {
		c.server = c.net.Start(backup)
		c.server.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY, Limited: true})
		c.server.Put(c.last)
		time.Sleep(time.Minute)
		c.server.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
			Limits: limitOf(rate), Customer: []uint64{assignment.CustomerID("batch")}, Share: []float32{1000}, // which it cannot know
		}}})
		synctest.Wait()
	}
	near := func(t *testing.T, what string, got, want float64) {
		t.Helper()
		if got < .9*want || got > 1.1*want {
			t.Errorf("%s: %.1f requests a second are let in, want %.0f", what, got, want)
		}
	}
	t.Run("started then", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, nil)
			c.assign(5, assignment.TaskRunning, "mo")
			c.server.Stop()
			backupWith(c, 40)
			near(t, "of a limit of 40 for two tasks", letIn(c.s, "batch"), 20)
			near(t, "without a limit", letIn(c.s, "mail"), 100)
			c.server.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY})
			synctest.Wait()
			near(t, "of a limit that is lifted", letIn(c.s, "batch"), 100)
			c.stop()
		})
	})
	t.Run("with shares", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, nil)
			c.assign(5, assignment.TaskRunning, "mo")
			c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY, ReportIntervalMs: 1000, Limited: true})
			c.server.Send(&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Quotas{Quotas: &slicerv1.Quotas{
				Limits: limitOf(40), Customer: []uint64{assignment.CustomerID("batch")}, Share: []float32{36},
			}}})
			synctest.Wait()
			near(t, "a share", letIn(c.s, "batch"), 36)
			c.server.Stop()
			backupWith(c, 20)
			// A minute and a half without a Distributor: a fifth of the way to an equal part, which is 10.
			near(t, "a share that grows old", letIn(c.s, "batch"), 31)
			time.Sleep(10 * time.Minute)
			near(t, "an old share", letIn(c.s, "batch"), 10)
			c.stop()
		})
	})
}
