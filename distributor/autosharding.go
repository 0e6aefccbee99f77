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

// source gives autosharding what this Distributor has.
type source struct{ d *Distributor }

// autoshardingClient is a client of gRPC's auto-sharding protocol, or of xDS.
type autoshardingClient struct {
	id   uint64
	job  *job
	left sync.Once

	petition *petition
	denied   error // it may not go on; guarded by the job's lock
}

// Join implements autosharding.Source.
func (s source) Join(ctx context.Context, job, name string, held assignment.Generation) (autosharding.Feed, error) {
	c, err := joinClient(ctx, s.d, job, fanout.ClientCame{Name: name, Held: held})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// joinClient enters a client, once it may watch the job, under a number of its own.
func joinClient(ctx context.Context, d *Distributor, job string, came fanout.ClientCame) (*autoshardingClient, error) {
	p := watches(ctx, d.cfg.Rights)
	j, err := d.acquireFor(ctx, job, p)
	if err != nil {
		return nil, err
	}
	c := &autoshardingClient{id: d.given.subscribers.Add(1), job: j, petition: p}
	came.ID = c.id
	if err := j.admit(ctx, p, func(now time.Time) error {
		if r, refused := j.stepLocked(now, came).(fanout.Refuse); refused {
			return r.Err
		}
		j.clients[c.id] = c
		return nil
	}); err != nil {
		d.release(j)
		return nil, err
	}
	return c, nil
}

// Newest implements autosharding.Feed.
func (c *autoshardingClient) Newest(now time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	j := c.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.denied != nil {
		return nil, nil, 0, c.denied
	}
	n := j.stepLocked(now, fanout.ClientAsks{ID: c.id}).(fanout.Newest)
	if n.Err != nil {
		return nil, nil, 0, n.Err
	}
	return n.Assignment, j.changed, n.Again, nil
}

// Metric implements autosharding.Feed.
func (c *autoshardingClient) Metric() string {
	c.job.mu.Lock()
	defer c.job.mu.Unlock()
	return c.job.core.Status().GetLoadMetric()
}

// Unmeasured implements autosharding.Feed.
func (c *autoshardingClient) Unmeasured() bool {
	c.job.mu.Lock()
	defer c.job.mu.Unlock()
	return c.job.core.Unmeasured()
}

// Holds implements autosharding.Feed.
func (c *autoshardingClient) Holds(now time.Time, gen assignment.Generation) {
	c.job.step(now, fanout.ClientHolds{ID: c.id, Gen: gen})
}

// Refuses implements autosharding.Feed.
func (c *autoshardingClient) Refuses(now time.Time) { c.job.step(now, fanout.ClientRefuses{ID: c.id}) }

// Leave implements autosharding.Feed.
func (c *autoshardingClient) Leave(now time.Time) {
	c.left.Do(func() {
		c.job.clientLeft(now, c.id)
		c.job.d.release(c.job)
	})
}

func (j *job) clientLeft(now time.Time, id uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stepLocked(now, fanout.Left{ID: id})
	delete(j.clients, id)
}

// clientLoads is what clients say to have sent. It has a lock of its own, taken
// after the job's.
type clientLoads struct {
	mu    sync.Mutex
	loads autosharding.Loads
}

// Report implements autosharding.Feed.
func (c *autoshardingClient) Report(now time.Time, r *autosharding.Report) {
	j := c.job
	newest := j.newest()
	if newest == nil {
		return
	}
	j.clientLoads.mu.Lock()
	defer j.clientLoads.mu.Unlock()
	j.clientLoads.loads.Add(now, newest, r)
}

// estimates returns the loads that clients say to have sent to tasks, for those that
// measure nothing themselves; nil if there are none.
func (j *job) estimates(now time.Time, newest *assignment.Assignment) func(task string, cpu float64) *slicerv1.LoadReport {
	g := &j.clientLoads
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

// addAutosharding adds what only this Distributor knows.
func (d *Distributor) addAutosharding(now time.Time, job string, r *slicerv1.InspectJobResponse) {
	c := d.autosharding.Counts(now, job)
	if r == nil || c == (autosharding.Counts{}) {
		return
	}
	r.Autosharding = append(r.Autosharding, &slicerv1.AutoshardingClients{
		DistributorId: d.cfg.ID, Clients: uint32(c.Clients), Refusing: uint32(c.Refusing), Acks: c.Acks, Nacks: c.Nacks,
		LastNack: c.LastNack, LastNackAgeMs: c.LastNackAge.Milliseconds(),
		Remarks: c.Remarks, LastRemark: c.LastRemark, LastRemarkAgeMs: c.LastRemarkAge.Milliseconds(),
	})
}
