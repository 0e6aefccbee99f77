package etcdstore

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// update is one record under a followed prefix, as it is now.
type update struct {
	record.KV
	rev  int64 // mod revision
	gone bool
}

// recordSink is what a follower keeps up to date with the records under a prefix. Its methods are
// called by one goroutine at a time.
type recordSink interface {
	// reset gets everything that there is at a revision: at first, and again when
	// the thread of changes was lost.
	reset(rev int64, all []update)
	// apply gets changes in order; rev is the last one's.
	apply(rev int64, changes []update)
	// end says that there will be no more.
	end()
}

const (
	followBackoffMin = 50 * time.Millisecond
	followBackoffMax = 5 * time.Second
	// checkInterval is how often a follower makes sure that the store is still the same
	// one, since in an etcd that was wiped a watch would wait for ever, and that the watch
	// has come to where etcd was the last time.
	checkInterval = 30 * time.Second
	// watchWithin bounds how long etcd may take to begin a watch.
	watchWithin = 5 * time.Second
	// streamKey tells streams of one client apart.
	streamKey = "slicer-watch-stream"
)

// follower keeps a sink up to date until it is stopped.
type follower struct {
	s       *Store
	prefix  string
	sink    recordSink
	streams int // that were left since they had fallen silent
	stop    context.CancelFunc
	done    chan struct{}
}

// follow returns when the sink has been reset for the first time.
func (s *Store) follow(ctx context.Context, prefix string, v recordSink) (*follower, error) {
	f := &follower{s: s, prefix: prefix, sink: v, done: make(chan struct{})}
	turn := s.conns.turn()
	rev, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(s.ctx)
	f.stop = stop
	if !s.goRun(func() { f.run(run, rev, turn) }) {
		stop()
		return nil, store.ErrClosed
	}
	return f, nil
}

// close stops the follower and waits for it.
func (f *follower) close() {
	f.stop()
	<-f.done
}

func (f *follower) run(ctx context.Context, rev int64, turn <-chan struct{}) {
	defer close(f.done)
	defer f.sink.end()
	wait := followBackoffMin
	for {
		if f.stream(ctx, rev, turn) {
			wait = followBackoffMin
		}
		for {
			if !backoff.Sleep(ctx, backoff.About(wait)) {
				return
			}
			turn = f.s.conns.turn()
			f.s.forgetAll()
			var err error
			if rev, err = f.list(ctx); err == nil {
				break
			}
			if ctx.Err() == nil {
				f.s.cfg.Logger.Warn("watch of the store is broken", "prefix", f.prefix, "error", err, "again_in", wait)
			}
			wait = min(2*wait, followBackoffMax)
		}
	}
}

// stream applies changes after rev until the watch breaks: by a lost leader, by
// compaction, by the store's end. It breaks when a connection has been made since
// turn, too: there may be another etcd at the end of it, in an earlier state, where
// a watch that goes on would wait for a revision that is far ahead. It reports whether
// it got any.
//
// All watches with the same metadata share a stream and begin on it one after the other,
// so one that etcd leaves without an answer leaves the others waiting. A watch that does
// not begin, or misses what has changed, is followed by one on another stream.
func (f *follower) stream(ctx context.Context, rev int64, turn <-chan struct{}) (any bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, streamKey, strconv.Itoa(f.streams))))
	defer cancel()
	check := time.NewTicker(f.s.cfg.checkInterval)
	defer check.Stop()
	newest := rev // as of the last check
	late := time.AfterFunc(watchWithin, cancel)
	responses := f.s.client.Watch(ctx, f.prefix, clientv3.WithRange(record.After(f.prefix)), clientv3.WithRev(rev+1))
	if !late.Stop() {
		f.leaveStream("etcd has not begun it within " + watchWithin.String())
		return false
	}
	for {
		select {
		case resp, ok := <-responses:
			if err := resp.Err(); !ok || err != nil {
				if ctx.Err() == nil {
					f.s.cfg.Logger.Info("watch of the store ended", "prefix", f.prefix, "error", err)
				}
				return any
			}
			changes := make([]update, len(resp.Events))
			for i, e := range resp.Events {
				changes[i] = update{record.KV{Key: string(e.Kv.Key), Value: e.Kv.Value}, e.Kv.ModRevision, e.Type == clientv3.EventTypeDelete}
			}
			if n := len(changes); n > 0 {
				rev, any = changes[n-1].rev, true
				f.sink.apply(rev, changes)
			}
		case <-turn:
			return any
		case <-check.C:
			if f.s.checkIdentity(ctx) != nil && f.s.Err() != nil {
				<-ctx.Done() // the process is to end
				return any
			}
			if rev < newest {
				f.leaveStream("it is silent")
				return any
			}
			if n, err := f.newest(ctx); err == nil {
				newest = n
			}
		}
	}
}

func (f *follower) leaveStream(why string) {
	f.streams++
	f.s.cfg.Logger.Warn("watch of the store begins again", "prefix", f.prefix, "reason", why)
}

// newest is the revision of the last change under the prefix that some member knows of.
func (f *follower) newest(ctx context.Context) (int64, error) {
	ctx, done, err := f.s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	resp, err := f.s.client.Get(ctx, f.prefix, clientv3.WithRange(record.After(f.prefix)), clientv3.WithSerializable(),
		clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return resp.Kvs[0].ModRevision, nil
}

// list resets the sink with everything there is.
func (f *follower) list(ctx context.Context) (rev int64, err error) {
	if err := f.s.checkIdentity(ctx); err != nil {
		return 0, err
	}
	ctx, done, err := f.s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	var all []update
	err = atOneRevision(func() (err error) { rev, all, err = f.everything(ctx); return err })
	if err != nil {
		return 0, err
	}
	f.sink.reset(rev, all)
	return rev, nil
}

// everything is what there is under the prefix at one revision.
func (f *follower) everything(ctx context.Context) (rev int64, all []update, err error) {
	for from := f.prefix; ; from = all[len(all)-1].Key + "\x00" {
		resp, err := f.s.client.Get(ctx, from, clientv3.WithRange(record.After(f.prefix)), clientv3.WithRev(rev), clientv3.WithLimit(1000))
		if err != nil {
			return 0, nil, f.s.explain(ctx, err)
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			all = append(all, update{record.KV{Key: string(kv.Key), Value: kv.Value}, kv.ModRevision, false})
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return rev, all, nil
		}
	}
}

// checkIdentity makes sure that the store is the one that was opened.
func (s *Store) checkIdentity(ctx context.Context) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := s.view(ctx, clientv3.OpGet(s.layout.ID()))
	if err != nil {
		return err
	}
	return s.sameIdentity(resp, 0)
}
