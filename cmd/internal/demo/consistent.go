package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
)

const (
	// leaseTTL is for how long the keys of a dead server stay without an owner.
	leaseTTL = 2 * time.Second
	// insistFor is how long a client waits for one server.
	insistFor = 250 * time.Millisecond
	// Overlaps are looked for at so many keys, so often.
	probeKeys  = 128
	probeEvery = 10 * time.Millisecond
	// probeWithin is how long a look at one key may take. A key that came back to
	// its owner between two questions would look as if it had never been away; that
	// takes two changes, and so a second.
	probeWithin = 100 * time.Millisecond
)

// errNotMine refuses a call for a key that is not the server's own.
var errNotMine = status.Error(codes.FailedPrecondition, "the key is not this server's")

// errNoAnswer is of a server that cannot be reached.
var errNoAnswer = errors.New("no answer")

// leases are a server's way to its leases, nil in affinity mode.
type leases struct {
	conn   *grpc.ClientConn
	reader *lease.Reader
}

func openLeases(addr string, c *cable) (*leases, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.dial))
	if err != nil {
		return nil, err
	}
	reader, err := lease.NewReader(lease.Config{Readers: remote.New(conn), TTL: leaseTTL})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &leases{conn, reader}, nil
}

func (l *leases) forSlicelet() *lease.Reader {
	if l == nil {
		return nil
	}
	return l.reader
}

// close gives the leases back, if the cable is not cut.
func (l *leases) close() {
	if l != nil {
		l.reader.Close()
		l.conn.Close()
	}
}

// insist asks the newest owner until it answers or the call is over: no other task may
// answer, and a key that moves has an owner again in a moment.
func (c *client) insist(ctx context.Context, key string, out *outcome) {
	_ = c.clerk.Do(ctx, key, func(ctx context.Context, owner assignment.Task) error {
		refused := out.refused
		c.try(ctx, insistFor, key, owner, out)
		out.retried = out.retried || !out.answered
		switch {
		case out.answered:
			return nil
		case out.refused > refused:
			return clerk.Refused{Job: c.clerk.Job(), Task: owner.Name}
		}
		return clerk.Unreached{Err: errNoAnswer}
	})
}

// believing waits until every server believes in what it owns.
func (d *demo) believing(ctx context.Context) error {
	for d.cfg.Consistent {
		d.mu.Lock()
		idle := 0
		for _, s := range d.servers {
			if len(s.slicelet.Slices()) == 0 {
				idle++
			}
		}
		d.mu.Unlock()
		if idle == 0 {
			break
		}
		if !backoff.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%d servers hold no lease after %s", idle, setUpLimit)
		}
	}
	return nil
}

// overlaps are what has been seen of keys with two owners.
type overlaps struct {
	looks, seen int64
	first       string
}

// lookOut looks for keys that two servers believe in, while the run lasts. A
// server that was killed is asked for as long as its process is there: it is cut
// off, and does not know better than its lease.
func (d *demo) lookOut(ctx context.Context) {
	if !d.cfg.Consistent {
		return
	}
	keys := make([]string, probeKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("probe/%d", i)
	}
	known := map[string]*server{}
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		for n, s := range d.servers {
			known[n] = s
		}
		d.mu.Unlock()
		var all []*server
		for _, s := range known {
			all = append(all, s)
		}
		var o overlaps
		for _, key := range keys {
			o.look(key, all)
		}
		d.mu.Lock()
		d.overlaps.looks += o.looks
		d.overlaps.seen += o.seen
		if d.overlaps.first == "" {
			d.overlaps.first = o.first
		}
		d.mu.Unlock()
	}
}

// look asks all servers for a key. The one that says yes is asked again after the others:
// only one that owns the key at both ends of the time in which another says yes owns it
// together with that one.
func (o *overlaps) look(key string, all []*server) {
	began := time.Now()
	o.looks++
	for i, s := range all {
		if !s.slicelet.IsAffinitized(key) {
			continue
		}
		both := slices.IndexFunc(all[i+1:], func(x *server) bool { return x.slicelet.IsAffinitized(key) })
		if both >= 0 && s.slicelet.IsAffinitized(key) && time.Since(began) < probeWithin {
			o.seen++
			o.first = fmt.Sprintf("%s by %s and %s", key, s.name, all[i+1+both].name)
		}
		return
	}
}

// tell fills in the summary.
func (o *overlaps) tell(s *Summary) {
	s.Looks, s.Overlaps = o.looks, o.seen
	if o.first != "" {
		s.Events = append(s.Events, event{Kind: evTrouble, Detail: "two owners: " + o.first})
	}
}

// countKill counts the calls that a server's death has cost, until its lease has
// run out and a moment more.
func (d *demo) countKill(ctx context.Context, before counts) {
	backoff.Sleep(ctx, leaseTTL+afterDrain)
	lost := d.meter.snapshot().total.minus(before).Errors
	d.mu.Lock()
	d.killErrors = lost
	d.mu.Unlock()
}
