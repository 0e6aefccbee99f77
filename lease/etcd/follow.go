package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follower keeps up with all keys of a job that an assigner changes, until it
// resigns. One watch serves all its waits, and spares it a read after each: a read
// would queue behind what the readers write, and a new watch that begins in the
// past is served by etcd only every 100 ms.
type follower struct {
	cancel context.CancelFunc
	conns  int64 // when it began: over another connection there may be another past

	mu      sync.Mutex
	keys    *jobKeys      // nil until it has been read
	changed chan struct{} // closed when the keys change, or it ends
	err     error         // why it has ended
}

// follow finds the job's follower, or starts one.
func (n *session) follow(job string) (*follower, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	conns := n.s.past.conns.Load()
	if f := n.followers[job]; f != nil {
		if !f.over() && f.conns == conns {
			return f, nil
		}
		f.cancel()
	}
	if n.closed || n.s.ctx.Err() != nil {
		return nil, lease.ErrLost
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(n.s.ctx))
	f := &follower{cancel: cancel, conns: conns, changed: make(chan struct{})}
	if n.followers == nil {
		n.followers = map[string]*follower{}
	}
	n.followers[job] = f
	n.s.wg.Go(func() {
		defer cancel()
		err := n.keepUp(ctx, job, f)
		f.update(func() { f.err = err })
	})
	return f, nil
}

// keepUp reads, and watches from there, until the watch ends.
func (n *session) keepUp(ctx context.Context, job string, f *follower) error {
	reading, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	v, err := n.read(reading, job)
	if err != nil {
		return err
	}
	f.update(func() { f.keys = v })
	known := told{v.revision, v.records}
	stream, err := n.s.watch(ctx, string(v.k), v.revision+1)
	if err != nil {
		return err
	}
	defer stream.end()
	listening := n.s.listen(job, n.ttl)
	defer listening.stop()
	for {
		var resp clientv3.WatchResponse
		var ok bool
		select {
		case resp, ok = <-stream.events:
		case <-listening.timer.C:
			if listening.silent(ctx, v.revision) {
				stream.leave()
				return fmt.Errorf("%w: the watch of job %s is silent", lease.ErrUnavailable, job)
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := resp.Err(); err != nil {
			return explain(ctx, err)
		}
		if !ok {
			return fmt.Errorf("%w: the watch of job %s has ended", lease.ErrUnavailable, job)
		}
		// The client goes on watching over a new connection.
		if err := n.s.prove(ctx, n.s.past.mark(), resp.Header.Revision); err != nil {
			return err
		}
		f.update(func() {
			for _, e := range resp.Events {
				err = errors.Join(err, v.set(string(e.Kv.Key), e.Kv.Value, e.Type == clientv3.EventTypePut))
				v.revision = e.Kv.ModRevision
			}
		})
		if len(resp.Events) > 0 {
			known = told{v.revision, known.records.after(v.k, resp.Events)}
			n.s.past.tell(n.era, job, known)
		}
		if err != nil {
			return err
		}
	}
}

func (f *follower) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err != nil
}

// update changes f under its lock, and wakes those that wait.
func (f *follower) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Await implements lease.WriteSession.
func (n *session) Await(ctx context.Context, job string, since int64) (lease.State, error) {
	over := n.s.past.ended(n.era)
	if over == nil {
		return lease.State{}, lease.ErrWentBack
	}
	f, err := n.follow(job)
	if err != nil {
		return lease.State{}, err
	}
	for {
		f.mu.Lock()
		var st lease.State
		if f.keys != nil && f.keys.revision > since {
			st = f.keys.state()
		}
		err, changed := f.err, f.changed
		f.mu.Unlock()
		switch {
		case err != nil:
			return lease.State{}, err
		case st.Revision > since:
			return st, nil
		}
		select {
		case <-ctx.Done():
			return lease.State{}, ctx.Err()
		case <-over:
			return lease.State{}, lease.ErrWentBack
		case <-changed:
		}
	}
}

// unfollow ends the job's follower, or all of them.
func (n *session) unfollow(job string, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, f := range n.followers {
		if all || name == job {
			f.cancel()
			delete(n.followers, name)
		}
	}
	n.closed = n.closed || all
}
