package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// Repeat is how often at least WatchRecords says what it has said already, so that
	// the other end, which waits for 15 s, knows that it lives.
	Repeat = 5 * time.Second
	// Stands is for how long an answer of RenewSessions which tells that records are as they
	// were stands for that: most sessions are renewed more often.
	Stands = 10 * time.Second
)

// renewWithin bounds one renewal that a stream asks for: what comes later is of no use to
// most lease times, and its holder may ask elsewhere.
const renewWithin = 10 * time.Second

// Renewal renews a session once. told is what RenewSessionsResponse tells of its watches.
type Renewal func(ctx context.Context, req *slicerv1.RenewSessionRequest) (resp *slicerv1.RenewSessionResponse, told int64, err error)

// Renewals serves RenewSessions until the stream ends, a renewal fails, or over is closed.
// A request is taken up once the one before it has been answered.
func Renewals(stream grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse], over <-chan struct{}, renew Renewal) error {
	busy, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- renewals(stream, busy, renew) }() // until the stream ends, as it does when this returns
	select {
	case err := <-ended:
		return err
	case <-over:
	}
	select {
	case err := <-ended:
		return err
	case busy <- struct{}{}: // nothing is answered any more
		return status.Error(codes.Unavailable, "the server is closed")
	}
}

func renewals(stream grpc.BidiStreamingServer[slicerv1.RenewSessionsRequest, slicerv1.RenewSessionsResponse], busy chan struct{}, renew Renewal) error {
	ctx := stream.Context()
	for {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case busy <- struct{}{}:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		renewing, cancel := context.WithTimeout(ctx, renewWithin)
		resp, told, err := renew(renewing, m.GetRenewal())
		cancel()
		if err == nil {
			err = stream.Send(&slicerv1.RenewSessionsResponse{Number: m.GetNumber(), Renewal: resp, Told: told})
		}
		<-busy
		if err != nil {
			return err
		}
	}
}
