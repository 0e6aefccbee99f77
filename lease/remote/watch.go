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
	return &watcher{n: n, at: at, job: job, stream: stream, cancel: cancel}, nil
}

type watcher struct {
	n      *session
	at     *server
	job    string
	stream grpc.ServerStreamingClient[slicerv1.WatchRecordsResponse]
	cancel context.CancelFunc
	last   lease.Seen
	begun  bool
}

// Next ends the stream when ctx ends, or nothing is heard.
func (w *watcher) Next(ctx context.Context) (lease.Seen, error) {
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	for {
		quiet := time.AfterFunc(silence, w.cancel)
		resp, err := w.stream.Recv()
		heard := quiet.Stop()
		if err != nil {
			return lease.Seen{}, w.failed(ctx, err, heard)
		}
		seen, err := records(resp.GetRecords())
		if err != nil {
			return lease.Seen{}, err
		}
		w.n.memory.tell(w.job, seen, resp.GetRecords().GetFingerprint())
		if !w.begun || seen != w.last {
			w.last, w.begun = seen, true
			return seen, nil
		}
	}
}

// failed goes on to another server, or makes this one know the session, for the next
// watch. A session that is lost is found out by the next KeepAlive.
func (w *watcher) failed(ctx context.Context, err error, heard bool) error {
	switch {
	case ctx.Err() != nil:
	case !heard || status.Code(err) == codes.Unavailable:
		w.n.s.leave(w.at)
	case status.Code(err) == codes.Aborted:
		renewing, cancel := context.WithTimeout(ctx, w.n.asked/4)
		defer cancel()
		_, _ = w.n.renew(renewing, w.at)
	}
	return explain(ctx, err)
}

func (w *watcher) Close() error {
	w.cancel()
	// Nothing of it is left once the stream has ended.
	for {
		if _, err := w.stream.Recv(); err != nil {
			return nil
		}
	}
}
