package crowdtest

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// stream is one Watch on a connection of its own, with the windows that package
// subscriber has.
type stream struct {
	slicerv1.SubscriberService_WatchClient
	conn *grpc.ClientConn
}

var (
	errTimedOut = errors.New("no connection in time")
	errRefused  = errors.New("no connection")
)

// open connects and says hello. A server that has not answered the connection within
// patience is given up. connected is called when it has, or will not.
func open(ctx context.Context, address string, patience time.Duration, hello *slicerv1.Hello, connected func()) (*stream, error) {
	defer connected()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<20), grpc.WithStaticConnWindowSize(1<<20), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * patience}))
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn}
	if err := s.connect(ctx, patience); err != nil {
		s.close()
		return nil, err
	}
	connected()
	s.SubscriberService_WatchClient, err = slicerv1.NewSubscriberServiceClient(conn).Watch(ctx, grpc.ForceCodecV2(codec{}))
	if err == nil {
		err = s.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}})
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stream) connect(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.conn.Connect()
	for {
		switch state := s.conn.GetState(); {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.TransientFailure:
			return errRefused
		case !s.conn.WaitForStateChange(ctx, state):
			return errTimedOut
		}
	}
}

func (s *stream) close() { s.conn.Close() }
