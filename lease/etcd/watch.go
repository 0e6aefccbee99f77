package etcdlease

import (
	"context"

	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Watch implements lease.ReadSession: one watch over both records.
func (n *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &watcher{s: n.s, k: n.s.keys(job)}, nil
}

type watcher struct {
	s      *Store
	k      keys
	seen   lease.Seen
	events clientv3.WatchChan
	cancel context.CancelFunc
}

func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	if w.events == nil {
		return w.begin(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return lease.Seen{}, ctx.Err()
		case resp, ok := <-w.events:
			if err := resp.Err(); !ok || err != nil {
				// Cut off, or too far behind: read again, and watch from there.
				w.Close()
				if err != nil {
					w.s.log.Warn("watch begins again", "keys", w.k.records(), "error", err)
				}
				return w.begin(ctx)
			}
			if len(resp.Events) == 0 {
				continue
			}
			for _, e := range resp.Events {
				var text []byte
				if e.Type == clientv3.EventTypePut {
					text = e.Kv.Value
				}
				if err := w.k.set(&w.seen, string(e.Kv.Key), text); err != nil {
					return lease.Seen{}, err
				}
				w.seen.Revision = e.Kv.ModRevision
			}
			return w.seen, nil
		}
	}
}

// begin reads both records at one revision, and watches from the next.
func (w *watcher) begin(ctx context.Context) (lease.Seen, error) {
	resp, err := w.s.client.Get(ctx, w.k.records(), clientv3.WithPrefix())
	if err != nil {
		return lease.Seen{}, explain(ctx, err)
	}
	seen, err := w.k.seen(resp, resp.Header.Revision)
	if err != nil {
		return lease.Seen{}, err
	}
	w.seen = seen
	// The watch outlives this call, until Close; a member without a leader ends it.
	live, cancel := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	w.cancel = cancel
	w.events = w.s.client.Watch(live, w.k.records(), clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	return w.seen, nil
}

func (w *watcher) Close() error {
	if w.cancel == nil {
		return nil
	}
	w.cancel()
	for range w.events { // closed once the watch has ended
	}
	w.events, w.cancel = nil, nil
	return nil
}
