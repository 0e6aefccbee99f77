package etcdlease

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/assignment/backoff"
	"github.com/slicer-project/slicer/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// watchWithin bounds how long etcd may take to begin a watch.
	watchWithin = 5 * time.Second
	// silence is for how long, at most, a watch that tells of nothing is believed.
	silence = 5 * time.Second
	// settled is how much later a watch may tell of a change than a read.
	settled = time.Second
	// streamKey tells streams of one client apart.
	streamKey = "slicer-watch-stream"
)

// stream is a watch that has begun.
type stream struct {
	s      *Store
	number int64 // of the client's stream that it is on
	events clientv3.WatchChan
	cancel context.CancelFunc
}

// watch begins to watch keys from a revision on, until the stream's end. ctx bounds its
// beginning alone.
//
// The client waits for etcd to begin it, and all watches that are asked for with the same
// metadata share a stream, on which they begin one after the other: where etcd leaves one
// without an answer, all others wait, and those that stand may tell of nothing any more.
// A reader that waits so holds its claims and renews them, and the job stands still. So
// that is bounded, and the next watch has a stream of its own.
func (s *Store) watch(ctx context.Context, prefix string, from int64) (*stream, error) {
	x := &stream{s: s, number: s.stream.Load()}
	md := metadata.Pairs(streamKey, strconv.FormatInt(x.number, 10))
	live, cancel := context.WithCancel(clientv3.WithRequireLeader(metadata.NewOutgoingContext(context.Background(), md)))
	x.cancel = cancel
	cut := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(watchWithin, cancel)
	x.events = s.client.Watch(live, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	inTime, uncut := late.Stop(), cut()
	if inTime && uncut {
		return x, nil
	}
	x.end()
	if inTime {
		return nil, ctx.Err()
	}
	x.leave()
	return nil, fmt.Errorf("%w: etcd has not begun a watch within %s", lease.ErrUnavailable, watchWithin)
}

// leave lets the next watch begin on another stream, unless it would already.
func (x *stream) leave() { x.s.stream.CompareAndSwap(x.number, x.number+1) }

// end ends the watch. What is left of it is taken until the client closes it.
func (x *stream) end() {
	x.cancel()
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.closed {
		return
	}
	x.s.wg.Go(func() {
		for range x.events {
		}
	})
}

// listening finds out whether a watch of a job's records, which tells of nothing, has
// fallen silent. It looks each time that its timer fires.
type listening struct {
	s      *Store
	job    string
	every  time.Duration
	timer  *time.Timer
	missed bool // a change that the watch may be about to tell of
}

// listen begins to, for a session of this lease time.
func (s *Store) listen(job string, ttl time.Duration) *listening {
	every := min(ttl, silence)
	return &listening{s: s, job: job, every: every, timer: time.NewTimer(backoff.Jitter(every))}
}

func (l *listening) stop() { l.timer.Stop() }

// silent reports whether the records changed after a revision that the watch has come
// to, and a while ago. It asks any member: one that lags knows of less.
func (l *listening) silent(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, watchWithin)
	defer cancel()
	resp, err := l.s.client.Get(ctx, l.s.keys(l.job).nonce(), clientv3.WithSerializable()) // it changes with every record
	was := l.missed
	l.missed = err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].ModRevision > revision
	if l.missed && was {
		l.s.log.Warn("watch is silent and begins again", "job", l.job, "revision", revision)
		return true
	}
	next := backoff.Jitter(l.every)
	if l.missed {
		next = settled
	}
	l.timer.Reset(next)
	return false
}
