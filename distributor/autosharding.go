package distributor

import (
	"context"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/autosharding"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// source gives the clients of gRPC's auto-sharding protocol what it has.
type source struct{ d *Distributor }

// guest is one such client.
type guest struct {
	id   uint64
	job  *job
	left sync.Once
}

// Join implements autosharding.Source.
func (s source) Join(ctx context.Context, job, name string, held assignment.Generation) (autosharding.Feed, error) {
	j, err := s.d.acquireFor(ctx, job)
	if err != nil {
		return nil, err
	}
	g := &guest{id: s.d.subscribers.Add(1), job: j}
	if r, refused := j.step(time.Now(), fanout.ClientCame{ID: g.id, Name: name, Held: held}).(fanout.Refuse); refused {
		s.d.release(j)
		return nil, r.Err
	}
	return g, nil
}

// Newest implements autosharding.Feed.
func (g *guest) Newest(now time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	j := g.job
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.stepLocked(now, fanout.ClientAsks{ID: g.id}).(fanout.Newest)
	if n.Err != nil {
		return nil, nil, 0, n.Err
	}
	return n.Assignment, j.changed, n.Again, nil
}

// Metric implements autosharding.Feed.
func (g *guest) Metric() string {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	return g.job.core.Status().GetLoadMetric()
}

// Unmeasured implements autosharding.Feed.
func (g *guest) Unmeasured() bool {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	return g.job.core.Unmeasured()
}

// Holds implements autosharding.Feed.
func (g *guest) Holds(now time.Time, gen assignment.Generation) {
	g.job.step(now, fanout.ClientHolds{ID: g.id, Gen: gen})
}

// Refuses implements autosharding.Feed.
func (g *guest) Refuses(now time.Time) { g.job.step(now, fanout.ClientRefuses{ID: g.id}) }

// Leave implements autosharding.Feed.
func (g *guest) Leave(now time.Time) {
	g.left.Do(func() {
		g.job.step(now, fanout.Left{ID: g.id})
		g.job.d.release(g.job)
	})
}

// guestLoads is what guests say to have sent. It has a lock of its own, taken
// after the job's.
type guestLoads struct {
	mu    sync.Mutex
	loads autosharding.Loads
}

// Report implements autosharding.Feed.
func (g *guest) Report(now time.Time, r *autosharding.Report) {
	j := g.job
	newest := j.newest()
	if newest == nil {
		return
	}
	j.guestLoads.mu.Lock()
	defer j.guestLoads.mu.Unlock()
	j.guestLoads.loads.Add(now, newest, r)
}

// estimates returns the loads that guests say to have sent to tasks, for those that
// measure nothing themselves; nil if there are none.
func (j *job) estimates(now time.Time, newest *assignment.Assignment) func(task string, cpu float64) *slicerv1.LoadReport {
	g := &j.guestLoads
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loads.Empty() {
		return nil
	}
	return func(task string, cpu float64) *slicerv1.LoadReport {
		g.mu.Lock()
		defer g.mu.Unlock()
		l := g.loads.Take(now, newest, task)
		if l == nil {
			return nil
		}
		l.CPU = cpu
		return wire.LoadToProto(l)
	}
}

// addGuests adds what only this Distributor knows.
func (d *Distributor) addGuests(now time.Time, job string, r *slicerv1.InspectJobResponse) {
	c := d.guests.Counts(now, job)
	if r == nil || c == (autosharding.Counts{}) {
		return
	}
	r.Autosharding = append(r.Autosharding, &slicerv1.AutoshardingClients{
		DistributorId: d.cfg.ID, Clients: uint32(c.Clients), Refusing: uint32(c.Refusing), Acks: c.Acks, Nacks: c.Nacks,
		LastNack: c.LastNack, LastNackAgeMs: c.LastNackAge.Milliseconds(),
		Remarks: c.Remarks, LastRemark: c.LastRemark, LastRemarkAgeMs: c.LastRemarkAge.Milliseconds(),
	})
}
