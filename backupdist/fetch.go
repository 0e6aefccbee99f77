package backupdist

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/backupdist/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func (svc subscriberService) Fetch(r *slicerv1.FetchRequest, stream grpc.ServerStreamingServer[slicerv1.WatchResponse]) error {
	s := svc.s
	if !s.enter() {
		return errClosing
	}
	defer s.wg.Done()
	e, err := s.wanted(stream.Context(), r)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	s.wg.Go(func() {
		_, err := e.send(stream)
		sent <- err
	})
	select {
	case err := <-sent:
		return err
	case <-s.life.Done():
		return errClosing
	}
}

// await waits, but not for long, until the job has been read once, and again if it has
// changed since: it may not have been needed for a while. A reading that is under way may
// have begun before the change, hence two at most.
func (j *job) await(ctx context.Context, p *petition) state {
	ctx, cancel := context.WithTimeout(ctx, protocol.Patience)
	defer cancel()
	defer context.AfterFunc(j.s.life, cancel)()
	st := j.now()
	for readings := 0; ctx.Err() == nil && !p.hopeless(j.name, st) && (!st.Known || readings < 2 && j.aged()); readings++ {
		select {
		case <-st.next:
		case <-ctx.Done():
		}
		st = j.now()
	}
	return st
}

// wanted returns the newest assignment, or the one with the number, whole.
func (s *Server) wanted(ctx context.Context, r *slicerv1.FetchRequest) (*encoding, error) {
	if err := protocol.CheckName(r.GetJob(), r.GetGeneration()); err != nil {
		return nil, err
	}
	p := s.asks(ctx, assignment.Watch)
	j, err := s.acquireFor(ctx, r.GetJob(), p)
	if err != nil {
		return nil, err
	}
	defer s.release(j)
	j.notify((*protocol.Job).Needed)
	st := j.await(ctx, p)
	if err := p.review(j.name, st); err != nil {
		return nil, err
	}
	a, g := st.Newest, assignment.Generation(r.GetGeneration())
	switch {
	case !st.Known || st.Missing:
		return nil, j.why(st.State, p)
	case a != nil && (g == 0 || g == a.Generation()):
		return st.update.wholly(r.GetCompressed()), nil
	case g == 0:
		return nil, status.Errorf(codes.NotFound, "job %q: it has no assignment yet", j.name)
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	home := s.sources[st.Home]
	if a, err = home.store.ReadGeneration(ctx, j.name, g); err != nil {
		return nil, statusOf(home.named(err))
	}
	return newUpdate(nil, a, s).wholly(r.GetCompressed()), nil
}
