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

// guest is one such client. It counts as a clerk, save while it refuses what it
// is sent: then as an observer, which nobody waits for.
type guest struct {
	id   uint64
	name string
	job  *job

	// Guarded by the job's lock.
	joined   time.Time
	held     assignment.Generation
	refusing bool
	left     bool
}

// Join implements autosharding.Source.
func (s source) Join(ctx context.Context, job, name string, held assignment.Generation) (autosharding.Feed, error) {
	j, err := s.d.acquireFor(ctx, job)
	if err != nil {
		return nil, err
	}
	g := &guest{id: s.d.number(), name: name, job: j, held: held}
	if err := j.admitGuest(time.Now(), g); err != nil {
		s.d.release(j)
		return nil, err
	}
	return g, nil
}

func (j *job) admitGuest(now time.Time, g *guest) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.admitLocked(now); err != nil {
		return err
	}
	g.joined = now
	j.conv.Join(g.id, slicerv1.Role_ROLE_CLERK, g.name, g.markLocked())
	j.up.AcksChanged(now)
	j.m.subscribers(slicerv1.Role_ROLE_CLERK, 1)
	j.measure(now)
	j.poke()
	return nil
}

// markLocked is what the guest counts as holding. It cannot say of which store that is:
// it is taken to be of the one that assignments are of now.
func (g *guest) markLocked() fanout.Version {
	if newest := g.job.shelf.Newest(); newest != nil && g.held != 0 {
		return fanout.Version{Store: newest.StoreID(), Gen: g.held}
	}
	return fanout.Version{Gen: g.held}
}

// Newest implements autosharding.Feed.
func (g *guest) Newest(now time.Time) (*assignment.Assignment, <-chan struct{}, time.Duration, error) {
	j := g.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.answer.unknown && j.answer.by == j.target {
		return nil, nil, 0, j.notFound()
	}
	if newest := j.shelf.Newest(); newest != nil {
		g.countLocked(now)
		return newest, j.changed, 0, nil
	}
	if j.known() {
		return nil, j.changed, patience, nil
	}
	since := g.joined
	if j.lostAt.After(since) {
		since = j.lostAt
	}
	if again := since.Add(patience).Sub(now); again > 0 {
		return nil, j.changed, again, nil
	}
	return nil, nil, 0, j.unavailable()
}

// countLocked has the guest counted as holding what it holds.
func (g *guest) countLocked(now time.Time) {
	if !g.left {
		g.job.holds(now, g.id, slicerv1.Role_ROLE_CLERK, g.markLocked())
	}
}

// Metric implements autosharding.Feed.
func (g *guest) Metric() string {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	return g.job.answer.status.GetLoadMetric()
}

// Unmeasured implements autosharding.Feed.
func (g *guest) Unmeasured() bool {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	return g.job.tasks.Unmeasured()
}

// Holds implements autosharding.Feed.
func (g *guest) Holds(now time.Time, gen assignment.Generation) {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	if g.left {
		return
	}
	g.held = gen
	g.setRefusingLocked(now, false)
	g.countLocked(now)
}

// Refuses implements autosharding.Feed.
func (g *guest) Refuses(now time.Time) {
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	if !g.left {
		g.job.m.refused()
		g.setRefusingLocked(now, true)
	}
}

func (g *guest) setRefusingLocked(now time.Time, refusing bool) {
	if g.refusing == refusing {
		return
	}
	g.refusing = refusing
	role := slicerv1.Role_ROLE_CLERK
	if refusing {
		role = slicerv1.Role_ROLE_OBSERVER
	}
	j := g.job
	j.conv.Join(g.id, role, g.name, g.markLocked())
	j.pace(now, false)
	j.up.AcksChanged(now)
	j.measure(now)
	j.poke()
}

// Leave implements autosharding.Feed.
func (g *guest) Leave(now time.Time) {
	j := g.job
	j.mu.Lock()
	left := g.left
	if !left {
		g.left = true
		j.conv.Leave(g.id)
		j.pace(now, false)
		j.up.AcksChanged(now)
		j.m.subscribers(slicerv1.Role_ROLE_CLERK, -1)
		j.measure(now)
		j.poke()
	}
	j.mu.Unlock()
	if !left {
		j.d.release(j)
	}
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
	j.mu.Lock()
	newest := j.shelf.Newest()
	j.mu.Unlock()
	if newest == nil {
		return
	}
	j.guestLoads.mu.Lock()
	defer j.guestLoads.mu.Unlock()
	j.guestLoads.loads.Add(now, newest, r)
}

// fillIn gives tasks that measure nothing themselves the load that guests say to
// have sent them, as if they had reported it.
func (j *job) fillIn(now time.Time) {
	newest := j.shelf.Newest()
	if newest == nil {
		return
	}
	j.guestLoads.mu.Lock()
	defer j.guestLoads.mu.Unlock()
	if j.guestLoads.loads.Empty() {
		return
	}
	j.tasks.FillIn(func(task string, cpu float64) *slicerv1.LoadReport {
		l := j.guestLoads.loads.Take(now, newest, task)
		if l == nil {
			return nil
		}
		l.CPU = cpu
		return wire.LoadToProto(l)
	})
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
