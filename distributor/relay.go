package distributor

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/relay"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// relaySource gives package relay what this Distributor has.
type relaySource struct{ d *Distributor }

func (d *Distributor) newRelay() *relay.Service {
	return relay.New(relay.Config{
		ID: d.cfg.ID, Zone: d.cfg.Zone, Upstreams: d.cfg.Upstreams, Serve: d.cfg.ServeDistributors, Source: relaySource{d}, Rights: d.cfg.Rights,
		Logger: d.log, Attached: func(n int) { d.metrics.downstreams.Set(float64(n)) },
	})
}

// Assigner implements relay.Source.
func (s relaySource) Assigner(id string) grpc.ClientConnInterface {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if a := s.d.attachments[id]; a != nil {
		return a.conn
	}
	return nil
}

// Upstreams implements relay.Source.
func (s relaySource) Upstreams() (all []*slicerv1.TierPeer) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.d.upstreams)) {
		all = append(all, &slicerv1.TierPeer{Id: id, Address: s.d.upstreams[id].address})
	}
	return all
}

// Preferences implements relay.Source.
func (s relaySource) Preferences() []*slicerv1.Preference {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.d.prefs.Newest()
}

// Fetch implements relay.Source.
func (s relaySource) Fetch(ctx context.Context, req *slicerv1.FetchRequest, to func(*slicerv1.WatchResponse)) error {
	p, err := s.d.fetch(ctx, req, &petition{peer: limiter.KeyOfContext(ctx)})
	if err == nil {
		_, err = send(p, carrier{send: to})
	}
	return err
}

// Join implements relay.Source.
func (s relaySource) Join(job string, in fanout.Hello, to func(relay.Feed, *slicerv1.WatchResponse)) (relay.Feed, error) {
	j, err := s.d.acquire(job, "") // the other Distributor has its own limit
	if err != nil {
		return nil, err
	}
	f := &relayFeed{&subscription{id: s.d.given.subscribers.Add(1), job: j, in: in, done: make(chan struct{})}}
	f.sub.stream = carrier{send: func(m *slicerv1.WatchResponse) { to(f, m) }}
	if err := j.join(context.Background(), f.sub); err != nil {
		s.d.release(j)
		return nil, err
	}
	return f, nil
}

// relayFeed is a subscription of a Distributor of the second tier.
type relayFeed struct{ sub *subscription }

// Done implements relay.Feed.
func (f *relayFeed) Done() <-chan struct{} { return f.sub.done }

// Err implements relay.Feed.
func (f *relayFeed) Err() error { return f.sub.err }

// Status implements relay.Feed.
func (f *relayFeed) Status() *slicerv1.JobStatus {
	f.sub.job.mu.Lock()
	defer f.sub.job.mu.Unlock()
	return f.sub.job.core.Status()
}

// Age implements relay.Feed.
func (f *relayFeed) Age(now time.Time, g assignment.Generation) time.Duration {
	return f.sub.job.age(now, g)
}

// Took implements relay.Feed.
func (f *relayFeed) Took(now time.Time, g assignment.Generation) {
	f.sub.job.step(now, fanout.Acked{ID: f.sub.id, Gen: g})
}

// Holds implements relay.Feed.
func (f *relayFeed) Holds(now time.Time, v fanout.Version, checksum uint64, compressed bool) {
	f.sub.job.step(now, fanout.Holds{ID: f.sub.id, Held: v, Checksum: checksum, Compressed: compressed})
}

// HeldElsewhere implements relay.Feed.
func (f *relayFeed) HeldElsewhere(now time.Time, v fanout.Version) {
	f.sub.job.step(now, fanout.HeldElsewhere{Held: v})
}

// Leave implements relay.Feed.
func (f *relayFeed) Leave(now time.Time) {
	f.sub.job.leave(now, f.sub.id)
	f.sub.job.d.release(f.sub.job)
}

// carrier is a subscriber's stream that ends in this process.
type carrier struct {
	grpc.BidiStreamingServer[slicerv1.WatchRequest, slicerv1.WatchResponse]
	send func(*slicerv1.WatchResponse)
}

// Local says that messages are taken as they are.
func (c carrier) Local() {}

func (c carrier) Context() context.Context     { return context.Background() }
func (c carrier) SetHeader(metadata.MD) error  { return nil }
func (c carrier) SendHeader(metadata.MD) error { return nil }

func (c carrier) SendMsg(m any) error {
	c.send(m.(*slicerv1.WatchResponse))
	return nil
}

func (c carrier) Send(m *slicerv1.WatchResponse) error { return c.SendMsg(m) }
