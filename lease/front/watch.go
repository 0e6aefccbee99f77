package front

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"github.com/slicer-project/slicer/lease/internal/rpc"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// watch is a session's of a job.
type watch struct {
	ctx  context.Context // constant: ends with the watch, and with the front
	end  context.CancelCauseFunc
	told etcdlease.Records // last; the front's lock guards it
}

func (v *service) WatchRecords(req *slicerv1.WatchRecordsRequest, stream grpc.ServerStreamingServer[slicerv1.WatchRecordsResponse]) error {
	if err := assignment.ValidateJobName(req.GetJob()); err != nil {
		return explain(err)
	}
	x, p, w, end, err := v.watch(stream.Context(), req.GetSession(), req.GetJob())
	if err != nil {
		return explain(err)
	}
	defer end()
	timer := time.NewTimer(rpc.Repeat)
	defer timer.Stop()
	var told etcdlease.Records
	for begun, due := false, false; ; {
		r, fresh, changed := p.job.look()
		// Records that are not watched just now are not told again: the other end finds
		// out that it hears nothing.
		if fresh && (due || !begun || r != told) {
			if err := stream.Send(&slicerv1.WatchRecordsResponse{Records: records(r)}); err != nil {
				return err
			}
			v.f.tell(w, r)
			told, begun, due = r, true, false
			timer.Reset(rpc.Repeat)
		}
		select {
		case <-changed:
		case now := <-timer.C:
			if rest := v.f.repeated(x, now); rest > 0 {
				timer.Reset(rest)
			} else {
				due = true
			}
		case <-w.ctx.Done():
			return explain(context.Cause(w.ctx))
		}
	}
}

// watch begins a session's watch of a job.
func (v *service) watch(ctx context.Context, t []byte, name string) (x *session, p *part, w *watch, end func(), err error) {
	o, f := rpc.OriginOf(ctx, v.f.cfg.Rights), v.f
	if x, err = f.find(t, o); err != nil {
		return nil, nil, nil, nil, err
	}
	if p, err = f.takesPart(x, name); err == nil {
		err = f.own(ctx, o, name, f.taskOf(x, name))
	}
	if err != nil {
		return nil, nil, nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, nil, nil, nil, errClosed
	case f.byName[x.ticket] != x:
		return nil, nil, nil, nil, errUnknownHere
	case f.limits.watches[o.Connection] >= MaxConnectionWatches:
		return nil, nil, nil, nil, errFull
	}
	f.limits.watches[o.Connection]++
	if p.watch != nil {
		p.watch.end(errReplaced)
	}
	w = &watch{}
	w.ctx, w.end = context.WithCancelCause(ctx)
	closing := context.AfterFunc(f.ctx, func() { w.end(errClosed) })
	p.watch = w
	return x, p, w, func() {
		closing()
		w.end(nil)
		f.mu.Lock()
		defer f.mu.Unlock()
		down(f.limits.watches, o.Connection)
		if p.watch == w {
			p.watch = nil
		}
	}, nil
}

func (f *Front) tell(w *watch, r etcdlease.Records) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.told = r
}

// told is what an answer to a session's renewal tells of its watches: the sum of the
// revisions of all that they have told last, if that is so still, else 0. They count as
// repeated then.
func (f *Front) told(x *session) (sum int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range x.jobs {
		if p.watch == nil {
			continue
		}
		r, fresh, _ := p.job.look()
		if !fresh || r != p.watch.told {
			return 0
		}
		sum += r.Revision
	}
	if sum != 0 {
		x.repeated = time.Now()
	}
	return sum
}

// repeated is for how much longer a session's watches need not repeat what they have told.
func (f *Front) repeated(x *session, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return x.repeated.Add(rpc.Stands).Sub(now)
}
