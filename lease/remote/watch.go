package remote

import (
	"context"
	"time"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// silence ends a watch whose other end, which repeats itself every five seconds at least,
// has said nothing.
const silence = 15 * time.Second

// Watch implements lease.ReadSession. It ends when another server is used.
func (n *session) Watch(ctx context.Context, job string) (lease.Watcher, error) {
	at := n.s.server()
	// The stream outlives this call, until Close.
	live, cancel := context.WithCancel(at.left)
	stream, err := at.WatchRecords(live, &slicerv1.WatchRecordsRequest{Session: n.secret, Job: job})
	if err != nil {
		cancel()
		return nil, explain(ctx, err)
	}
	w := &watcher{n: n, at: at, job: job, stream: stream, cancel: cancel}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watches[w] = struct{}{}
	return w, nil
}

// repeated takes what an answer to a renewal tells of the watches: it stands for their being
// repeated if they have been told the same.
func (n *session) repeated(at *server, told int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.watches {
		if w.at == at {
			told -= w.told
		}
	}
	if told != 0 {
		return
	}
	for w := range n.watches {
		if w.at == at && w.told != 0 {
			w.heard = time.Now()
		}
	}
}

type watcher struct {
	n      *session
	at     *server
	job    string
	stream grpc.ServerStreamingClient[slicerv1.WatchRecordsResponse]
	cancel context.CancelFunc
	last   lease.Seen
	begun  bool

	// The session's lock guards these.
	told  int64     // the revision of what was told last, 0 for nothing
	heard time.Time // when it was told, or that it is so still
}

// Next ends the stream when ctx ends, or nothing is heard.
func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	for {
		quiet, heard := w.listen()
		resp, err := w.stream.Recv()
		quiet()
		if err != nil {
			return lease.Seen{}, w.failed(ctx, err, heard())
		}
		seen, err := records(resp.GetRecords())
		if err != nil {
			return lease.Seen{}, err
		}
		w.n.memory.tell(w.job, seen, resp.GetRecords().GetFingerprint())
		w.n.mu.Lock()
		w.told, w.heard = seen.Revision, time.Now()
		w.n.mu.Unlock()
		if !w.begun || seen != w.last {
			w.last, w.begun = seen, true
			return seen, nil
		}
	}
}

// listen ends the stream once nothing has been heard for silence, until quiet is called.
// heard reports whether it has not.
func (w *watcher) listen() (quiet func(), heard func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	began, silent := time.Now(), false
	var timer *time.Timer
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	timer = time.AfterFunc(silence, func() {
		w.n.mu.Lock()
		defer w.n.mu.Unlock()
		last := w.heard
		if last.Before(began) {
			last = began
		}
		switch left := silence - time.Since(last); {
		case ctx.Err() != nil:
		case left > 0:
			timer.Reset(left)
		default:
			silent = true
			w.cancel()
		}
	})
	quiet = func() { cancel(); timer.Stop() }
	return quiet, func() bool {
		w.n.mu.Lock()
		defer w.n.mu.Unlock()
		return !silent
	}
}

// failed goes on to another server, or makes this one know the session, for the next
// watch. A session that is lost is found out by the next KeepAlive.
func (w *watcher) failed(ctx context.Context, err error, heard bool) error {
	switch {
	case ctx.Err() != nil:
	case !heard || status.Code(err) == codes.Unavailable:
		w.n.s.leave(w.at)
	case status.Code(err) == codes.InvalidArgument:
		// A front that the session has come to since did not know the job, which was deleted.
		w.n.memory.takesNoPart(w.job)
	case status.Code(err) == codes.Aborted:
		renewing, cancel := context.WithTimeout(ctx, w.n.asked/4)
		defer cancel()
		_, _ = w.n.renew(renewing, w.at)
	}
	return explain(ctx, err)
}

func (w *watcher) Close() error {
	w.n.mu.Lock()
	delete(w.n.watches, w)
	w.n.mu.Unlock()
	w.cancel()
	// Nothing of it is left once the stream has ended.
	for {
		if _, err := w.stream.Recv(); err != nil {
			return nil
		}
	}
}
