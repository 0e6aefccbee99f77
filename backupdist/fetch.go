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
	e, done, err := s.wanted(stream.Context(), r)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	s.wg.Go(func() {
		defer done()
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

// wanted returns the newest assignment, or the one with the number, or a part, and what to call when
// it has been sent.
func (s *Server) wanted(ctx context.Context, r *slicerv1.FetchRequest) (e *encoding, done func(), err error) {
	if err := protocol.CheckName(r.GetJob(), r.GetGeneration()); err != nil {
		return nil, nil, err
	}
	if err := assignment.ValidatePart(r.GetPart()); err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	p := s.asks(ctx, assignment.Watch)
	j, err := s.acquireFor(ctx, r.GetJob(), p)
	if err != nil {
		return nil, nil, err
	}
	defer s.release(j)
	j.notify((*protocol.Job).Needed)
	st := j.await(ctx, p)
	if err := p.review(j.name, st); err != nil {
		return nil, nil, err
	}
	a, g := st.Newest, assignment.Generation(r.GetGeneration())
	switch {
	case !st.Known || st.Missing:
		return nil, nil, j.why(st.State, p)
	case a != nil && (g == 0 || g == a.Generation()):
		return st.update.fetched(r), func() {}, nil
	case g == 0:
		return nil, nil, status.Errorf(codes.NotFound, "job %q: it has no assignment yet", j.name)
	}
	o, done, err := j.older(ctx, olderID{st.Home, g})
	if err != nil {
		return nil, nil, err
	}
	return o.update.fetched(r), done, nil
}

// olderID names a generation before the newest, by the store that has it.
type olderID struct {
	home int
	g    assignment.Generation
}

// older is a generation that is fetched. All that do so at the time share it, so that what they
// take does not grow with how many they are.
type older struct {
	cancel context.CancelFunc
	users  int           // the job's lock guards it
	done   chan struct{} // closed when it has been read, or why not is known
	update *update
	err    error
}

// older reads a generation, unless that is under way. leave is to be called when it has been sent.
func (j *job) older(ctx context.Context, id olderID) (_ *older, leave func(), err error) {
	j.mu.Lock()
	o := j.olders[id]
	if o == nil {
		reading, cancel := context.WithTimeout(j.s.life, readWithin)
		o = &older{cancel: cancel, done: make(chan struct{})}
		j.olders[id] = o
		j.s.wg.Go(func() {
			defer close(o.done)
			o.update, o.err = j.readOlder(reading, id)
		})
	}
	o.users++
	j.mu.Unlock()
	leave = func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if o.users--; o.users == 0 {
			o.cancel() // nothing waits for it
			delete(j.olders, id)
		}
	}
	select {
	case <-o.done:
		err = o.err
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return o, leave, nil
}

func (j *job) readOlder(ctx context.Context, id olderID) (*update, error) {
	s := j.s
	select {
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	home := s.sources[id.home]
	a, err := home.store.ReadGeneration(ctx, j.name, id.g)
	if err != nil {
		return nil, statusOf(home.named(err))
	}
	return newUpdate(nil, a, assignment.NewCut(a), s), nil
}
