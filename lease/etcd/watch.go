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
	return &watcher{n: n, job: job, k: n.s.keys(job), leave: n.use(job)}, nil
}

type watcher struct {
	n       *session
	job     string
	k       keys
	leave   func()
	seen    lease.Seen
	records records
	stream  *stream // nil until it has begun
}

func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	if w.stream == nil {
		return w.begin(ctx)
	}
	over := w.n.s.past.ended(w.n.era)
	if over == nil {
		return lease.Seen{}, lease.ErrWentBack
	}
	listening := w.n.s.listen(w.job, w.n.ttl)
	defer listening.stop()
	for {
		select {
		case <-listening.timer.C:
			if listening.silent(ctx, w.seen.Revision) {
				w.stream.leave()
				w.end()
				return w.begin(ctx)
			}
		case <-ctx.Done():
			return lease.Seen{}, ctx.Err()
		case <-over:
			return lease.Seen{}, lease.ErrWentBack
		case resp, ok := <-w.stream.events:
			if err := resp.Err(); !ok || err != nil {
				// Cut off, or too far behind: read again, and watch from there.
				w.end()
				if err != nil {
					w.n.s.log.Warn("watch begins again", "keys", w.k.records(), "error", err)
				}
				return w.begin(ctx)
			}
			if len(resp.Events) == 0 {
				continue
			}
			// The client goes on watching over a new connection.
			m, err := w.n.begin()
			if err == nil {
				err = w.n.s.prove(ctx, m, resp.Header.Revision)
			}
			if err != nil {
				w.end() // these events are lost: the next call reads
				return lease.Seen{}, err
			}
			w.records = w.records.after(w.k, resp.Events)
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
			return w.tell()
		}
	}
}

// tell remembers what was seen.
func (w *watcher) tell() (lease.Seen, error) {
	past := w.n.s.past
	if !past.learn(w.n.era, w.seen.Revision) {
		return lease.Seen{}, lease.ErrWentBack
	}
	past.tell(w.n.era, w.job, told{w.seen.Revision, w.records})
	return w.seen, nil
}

// begin reads both records at one revision, and watches from the next.
func (w *watcher) begin(ctx context.Context) (lease.Seen, error) {
	m, err := w.n.begin()
	if err != nil {
		return lease.Seen{}, err
	}
	client := w.n.s.client
	resp, err := client.Get(ctx, w.k.records(), clientv3.WithPrefix())
	if err != nil {
		return lease.Seen{}, explain(ctx, err)
	}
	if err := w.n.s.heard(ctx, m, resp.Header.Revision); err != nil {
		return lease.Seen{}, err
	}
	seen, err := w.k.seen(resp, resp.Header.Revision)
	if err != nil {
		return lease.Seen{}, err
	}
	w.seen, w.records = seen, w.k.recordsIn(resp)
	// The watch outlives this call, until Close; a member without a leader ends it.
	if w.stream, err = w.n.s.watch(ctx, w.k.records(), resp.Header.Revision+1); err != nil {
		return lease.Seen{}, err
	}
	return w.tell()
}

func (w *watcher) Close() error {
	w.leave()
	w.end()
	return nil
}

func (w *watcher) end() {
	if w.stream == nil {
		return
	}
	w.stream.end()
	w.stream = nil
}
