package etcdlease

import (
	"context"
	"fmt"
	"sync"

	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follower watches all keys of a job that an assigner waits for, until it
// resigns. One watch serves all its waits: a new watch that begins in the past is
// served by etcd only every 100 ms.
type follower struct {
	cancel context.CancelFunc

	mu     sync.Mutex
	latest int64         // revision of the last change seen
	rung   chan struct{} // closed at the next
	ended  bool
}

// follow finds the job's follower, or starts one.
func (n *session) follow(job string, since int64) (*follower, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.followers[job]; f != nil && !f.over() {
		return f, nil
	}
	if n.closed || n.s.ctx.Err() != nil {
		return nil, lease.ErrLost
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(n.s.ctx))
	f := &follower{cancel: cancel, latest: since, rung: make(chan struct{})}
	if n.followers == nil {
		n.followers = map[string]*follower{}
	}
	n.followers[job] = f
	events := n.s.client.Watch(ctx, string(n.s.keys(job)), clientv3.WithPrefix(), clientv3.WithRev(since+1))
	n.s.wg.Go(func() {
		for resp := range events {
			if resp.Err() == nil && len(resp.Events) > 0 {
				f.ring(resp.Events[len(resp.Events)-1].Kv.ModRevision, false)
			}
		}
		f.ring(0, true)
	})
	return f, nil
}

func (f *follower) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *follower) ring(revision int64, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest, f.ended = max(f.latest, revision), f.ended || ended
	close(f.rung)
	f.rung = make(chan struct{})
}

// Changed implements lease.WriteSession.
func (n *session) Changed(ctx context.Context, job string, since int64) error {
	f, err := n.follow(job, since)
	if err != nil {
		return err
	}
	for {
		f.mu.Lock()
		latest, ended, rung := f.latest, f.ended, f.rung
		f.mu.Unlock()
		switch {
		case latest > since:
			return nil
		case ended:
			return fmt.Errorf("%w: the watch of job %s has ended", lease.ErrUnavailable, job)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rung:
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
