package distributor

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/distributor/relay"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A Distributor of the second tier has two kinds of streams, both to Distributors of the
// first. On one to each of these it asks for assignments, as it would ask an assigner.
// Through one of them, whichever is attached, it has a stream to each assigner, on which
// it says what any Distributor says: the first tier passes that on unread and unmerged,
// so that an assigner knows which tasks each Distributor could have heard, how far its
// subscribers are, and when it is gone.

// secondTier reports whether this Distributor is of the second tier.
func (d *Distributor) secondTier() bool { return len(d.cfg.Upstreams) > 0 }

func (d *Distributor) tier() int {
	if d.secondTier() {
		return 2
	}
	return 1
}

// asked is what a Distributor asks for assignments.
func (c *Config) asked() string {
	if len(c.Upstreams) > 0 {
		return "distributor of the first tier"
	}
	return "assigner"
}

// peers are the streams to Distributors of the first tier, or to assigners, by id.
func (d *Distributor) peers(firstTier bool) map[string]*attachment {
	if firstTier {
		return d.upstreams
	}
	return d.attachments
}

func (d *Distributor) countPeers() {
	d.metrics.assigners.Set(float64(len(d.attachments)))
	d.metrics.upstreams.Set(float64(len(d.upstreams)))
}

// kind is what the other end is called in logs.
func (a *attachment) kind() string { return kindOf(a.FirstTier) }

func kindOf(firstTier bool) string {
	if firstTier {
		return "distributor"
	}
	return "assigner"
}

func (l *link) firstTier() bool { return l.d.secondTier() && l.assigner == "" }
func (l *link) kind() string    { return kindOf(l.firstTier()) }

var errNoUpstream = errors.New("no distributor of the first tier is attached")

// via is the connection that leads there. To an assigner it leads through any of the
// Distributors of the first tier, each time another: one may not be attached to it.
func (l *link) via() (grpc.ClientConnInterface, string, error) {
	if l.assigner == "" {
		return l.conn, l.address, nil
	}
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	upstreams := slices.Collect(maps.Values(l.d.upstreams))
	if len(upstreams) == 0 {
		return nil, "", errNoUpstream
	}
	a := upstreams[rand.N(len(upstreams))]
	return a.conn, a.address, nil
}

// open begins a stream.
func (l *link) open(ctx context.Context, conn grpc.ClientConnInterface) (slicerv1.AssignerService_AttachClient, error) {
	if !l.d.secondTier() {
		return slicerv1.NewAssignerServiceClient(conn).Attach(ctx)
	}
	if l.assigner != "" {
		ctx = relay.Through(ctx, l.assigner)
	}
	return slicerv1.NewRelayServiceClient(conn).Attach(ctx)
}

// maintainRelayed keeps one link to each assigner that the first tier knows.
func (d *Distributor) maintainRelayed(ctx context.Context, links map[string]*link) {
	d.mu.Lock()
	known := make(map[string]struct{})
	for _, c := range d.prefs.Candidates() {
		known[c.ID] = struct{}{}
	}
	d.mu.Unlock()
	for id := range known {
		if links[id] == nil {
			l := &link{d: d, assigner: id, log: d.log.With("relayed", id), stopped: make(chan struct{})}
			links[id] = l
			d.startRun(ctx, l)
		}
	}
	for id, l := range links {
		if _, ok := known[id]; !ok && !d.attachedTo(false, id) {
			l.cancel()
			<-l.stopped
			delete(links, id)
		}
	}
}

// startRun runs a link until ctx ends or the link is cancelled.
func (d *Distributor) startRun(ctx context.Context, l *link) {
	ctx, l.cancel = context.WithCancel(ctx)
	d.handlers.Go(func() { l.run(ctx) })
}
