// Package driver lets the conformance kit drive this repository's slicelet and clerk. It is also
// the example of a driver: what one does in another language.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/conformance/line"
)

var errNotStarted = errors.New("not started")

// logger writes to standard error, which the kit shows when something is wrong.
func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// Slicelet serves the requests of in for a slicelet.
func Slicelet(in io.Reader, out io.Writer) error {
	d := new(sliceletDriver)
	defer d.close()
	return line.Serve(in, out, d.do)
}

type sliceletDriver struct {
	s        *slicelet.Slicelet
	leases   *lease.Reader
	conns    []*grpc.ClientConn // to where they are had
	listener listener
	draining context.CancelFunc
	drained  chan struct{}
}

// listener notes what it is told.
type listener struct {
	mu      sync.Mutex
	changes []line.Change
}

// SlicesChanged is slicelet.Listener's.
func (l *listener) SlicesChanged(_ context.Context, c slicelet.Change) {
	ranges := func(rs []slicelet.Range) (out [][2]string) {
		for _, r := range rs {
			out = append(out, [2]string{r.Start.String(), r.End.String()})
		}
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, line.Change{Arrived: ranges(c.Arrived), Departed: ranges(c.Departed)})
}

func (l *listener) take() []line.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.changes
	l.changes = nil
	return all
}

func (d *sliceletDriver) close() {
	if d.draining != nil {
		d.draining()
		<-d.drained
	}
	if d.s != nil {
		_ = d.s.Close()
	}
	if d.leases != nil {
		_ = d.leases.Close()
	}
	for _, c := range d.conns {
		_ = c.Close()
	}
}

// lease opens the way to the leases.
func (d *sliceletDriver) lease(addrs []string) (err error) {
	if len(addrs) == 0 {
		return nil
	}
	var conns []grpc.ClientConnInterface
	for _, addr := range addrs {
		c, err := grpc.NewClient(addr, append(remote.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return err
		}
		d.conns, conns = append(d.conns, c), append(conns, c)
	}
	d.leases, err = lease.NewReader(lease.Config{Readers: remote.New(conns...), Logger: logger()})
	return err
}

func (d *sliceletDriver) do(q line.Request) (r line.Reply, err error) {
	if d.s == nil && q.Op != "start" && q.Op != "hash" && q.Op != "close" {
		return r, errNotStarted
	}
	switch q.Op {
	case "start":
		if err = d.lease(q.Leases); err != nil {
			return r, err
		}
		d.s, err = slicelet.New(slicelet.Config{
			Leases: d.leases, Job: q.Job, Task: q.Task, Address: q.Address, Zone: q.Zone, Starting: q.Starting,
			Distributors: q.Distributors, Backups: q.Backups, CacheFile: q.CacheFile, Logger: logger(),
		})
		if err == nil {
			d.s.Listen(&d.listener)
		}
	case "state":
		if a := d.s.Assignment(); a != nil {
			r.Generation = int64(a.Generation())
		}
		r.Drained = closed(d.drained)
	case "hash":
		r.SliceKeys = hash(q.Keys)
	case "owns":
		for _, k := range q.Keys {
			r.Owned = append(r.Owned, d.s.IsAffinitized(k))
		}
	case "handle":
		for range q.N {
			d.s.Handle(q.Key)
		}
	case "changes":
		r.Changes = d.listener.take()
	case "started":
		d.s.Started()
	case "drain":
		if d.drained == nil {
			d.drain()
		}
	case "close":
		d.close()
	default:
		err = line.ErrUnsupported
	}
	return r, err
}

// drain drains without holding up other requests.
func (d *sliceletDriver) drain() {
	var ctx context.Context
	ctx, d.draining = context.WithCancel(context.Background())
	d.drained = make(chan struct{})
	go func() {
		_ = d.s.Drain(ctx) // an error is that it was given up
		close(d.drained)
	}()
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default: // nil, too
		return false
	}
}

func hash(keys []string) (out []string) {
	for _, k := range keys {
		out = append(out, assignment.KeyOf(k).String())
	}
	return out
}

// Clerk serves the requests of in for a clerk.
func Clerk(in io.Reader, out io.Writer) error {
	d := new(clerkDriver)
	defer d.close()
	return line.Serve(in, out, d.do)
}

type clerkDriver struct{ c *clerk.Clerk }

func (d *clerkDriver) close() {
	if d.c != nil {
		_ = d.c.Close()
	}
}

func (d *clerkDriver) do(q line.Request) (r line.Reply, err error) {
	if d.c == nil && q.Op != "start" && q.Op != "hash" && q.Op != "close" {
		return r, errNotStarted
	}
	switch q.Op {
	case "start":
		d.c, err = clerk.New(clerk.Config{
			Job: q.Job, ClientID: q.ClientID, Zone: q.Zone,
			Distributors: q.Distributors, Backups: q.Backups, CacheFile: q.CacheFile, Logger: logger(),
		})
	case "state":
		if a := d.c.Assignment(); a != nil {
			r.Generation = int64(a.Generation())
		}
	case "hash":
		r.SliceKeys = hash(q.Keys)
	case "lookup":
		for _, k := range q.Keys {
			names := []string{}
			for t := range d.c.Lookup(k).All() {
				names = append(names, t.Name)
			}
			r.Owners = append(r.Owners, names)
		}
	case "pick":
		r.Picked = make(map[string]int)
		for range q.N {
			// The request goes to the task; here it is only counted.
			err := d.c.Do(context.Background(), q.Key, func(_ context.Context, t assignment.Task) error {
				r.Picked[t.Name]++
				return nil
			})
			if err != nil {
				return r, fmt.Errorf("request for %q: %w", q.Key, err)
			}
		}
	case "close":
		d.close()
	default:
		err = line.ErrUnsupported
	}
	return r, err
}
