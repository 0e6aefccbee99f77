package distributor

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/xds"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// xdsSource gives xds what this Distributor has.
type xdsSource struct{ d *Distributor }

// Join implements xds.Source.
func (s xdsSource) Join(ctx context.Context, job, name string) (xds.Feed, error) {
	c, err := joinClient(ctx, s.d, job, fanout.ClientCame{Name: name, Observes: true})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Terms implements xds.Feed.
func (c *autoshardingClient) Terms() xds.Terms {
	c.job.mu.Lock()
	defer c.job.mu.Unlock()
	s := c.job.core.Status()
	return xds.Terms{Consistent: s.GetMode() == slicerv1.Mode_MODE_CONSISTENT, Config: wire.XDSFromProto(s.GetXds()).OrDefaults()}
}

// Observes implements xds.Feed.
func (c *autoshardingClient) Observes(now time.Time) {
	c.job.step(now, fanout.ClientObserves{ID: c.id})
}

// add adds what only this Distributor knows.
func (s xdsSource) add(now time.Time, job string, r *slicerv1.InspectJobResponse) {
	d := s.d
	c := d.xds.Counts(now, job)
	if r == nil || c == (xds.Counts{}) {
		return
	}
	r.Xds = append(r.Xds, &slicerv1.XdsClients{
		DistributorId: d.cfg.ID, Clients: uint32(c.Clients), Refusing: uint32(c.Refusing), Acks: c.Acks, Nacks: c.Nacks,
		LastNack: c.LastNack, LastNackAgeMs: c.LastNackAge.Milliseconds(), Refused: c.Refused,
	})
}
