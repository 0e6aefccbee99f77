package remote

import (
	"context"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// renewals are those that a session asks for over a stream, which costs a server less than
// calls do. One is under way at a time. A stream whose answer was not waited for is
// ended: it cannot be credited to a later renewal, which would count from too late a time.
type renewals struct {
	n    *session
	turn chan struct{} // holds a token while a renewal is under way
	over context.Context
	end  context.CancelFunc

	// Who has the turn guards these.
	at     *server
	stream grpc.BidiStreamingClient[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse] // nil for none
	cancel context.CancelFunc
	number int64
}

func newRenewals(n *session) *renewals {
	r := &renewals{n: n, turn: make(chan struct{}, 1)}
	r.over, r.end = context.WithCancel(context.Background())
	return r
}

// renew asks a server to renew the lease, over the stream to it that there is, or a new one.
func (r *renewals) renew(ctx context.Context, at *server) (time.Duration, error) {
	if lost := r.n.lost.Load(); lost != nil {
		return 0, *lost
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return 0, status.FromContextError(ctx.Err()).Err()
	}
	for {
		if at.plain.Load() || r.over.Err() != nil {
			return r.n.renew(ctx, at)
		}
		used := r.stream != nil && r.at == at
		granted, err := r.ask(ctx, at)
		switch {
		case ctx.Err() != nil:
			return 0, status.FromContextError(ctx.Err()).Err()
		case status.Code(err) == codes.Unimplemented:
			at.plain.Store(true)
		case err != nil && at.left.Err() != nil:
			return 0, status.Error(codes.Unavailable, "another server is used now")
		case err != nil && used && status.Code(err) == codes.Unavailable:
			// The connection may have ended long ago.
		default:
			return granted, err
		}
	}
}

// ask makes one renewal over a stream, which does not outlast an error.
func (r *renewals) ask(ctx context.Context, at *server) (time.Duration, error) {
	req, version := r.n.memory.request(r.n.secret)
	resp, err := r.exchange(ctx, at, req)
	if err != nil && r.stream != nil {
		r.cancel()
		r.stream = nil
	}
	return r.n.renewed(resp, err, version)
}

func (r *renewals) exchange(ctx context.Context, at *server, req *slicerv1.RenewSessionRequest) (*slicerv1.RenewSessionResponse, error) {
	if r.at != at || r.stream == nil {
		if r.stream != nil {
			r.cancel()
			r.stream = nil
		}
		live, end := context.WithCancel(r.over)
		left := context.AfterFunc(at.left, end)
		cancel := func() { left(); end() }
		begins := context.AfterFunc(ctx, cancel)
		stream, err := at.RenewSessions(live)
		if err == nil && !begins() {
			err = status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			cancel()
			return nil, err
		}
		r.at, r.stream, r.cancel = at, stream, cancel
	}
	waits := context.AfterFunc(ctx, r.cancel)
	r.number++
	_ = r.stream.Send(&slicerv1.RenewSessionsRequest{Number: r.number, Renewal: req}) // of a stream that has ended Recv knows why
	resp, err := r.stream.Recv()
	switch {
	case err != nil:
		waits()
		return nil, err
	case !waits():
		return nil, status.FromContextError(ctx.Err()).Err()
	case resp.GetNumber() != r.number:
		return nil, status.Errorf(codes.Unavailable, "renewal %d was answered with number %d", r.number, resp.GetNumber())
	}
	r.n.repeated(at, resp.GetTold())
	return resp.GetRenewal(), nil
}
