package run

import (
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Bounds of an orderly end: how long running calls may take, and how long
// everything together.
const (
	graceLimit = 5 * time.Second
	// StopLimit is within how long of a signal a server process has ended.
	StopLimit = 15 * time.Second
)

// Server is a gRPC server on a port.
type Server struct {
	lis  net.Listener
	srv  *grpc.Server
	done chan struct{}
	err  error // why serving ended, once done is closed
}

// Listen opens the port; the error of one in use names flag and address.
func Listen(flag, addr string) (net.Listener, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return lis, nil
}

// Serve starts to serve on lis, which it takes over. The options take the place
// of the usual ones where they say something else.
func Serve(lis net.Listener, creds credentials.TransportCredentials, register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) *Server {
	s := &Server{lis: lis, done: make(chan struct{})}
	s.srv = grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(creds),
		// Streams are silent for long: both sides ask whether the other lives.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second),
	}, opts...)...)
	register(s.srv)
	go func() {
		defer close(s.done)
		// A server that is stopped before it has begun says so, which is no failure.
		if err := s.srv.Serve(lis); !errors.Is(err, grpc.ErrServerStopped) {
			s.err = err
		}
	}()
	return s
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Stop takes no more connections, ends the streams by closeBehind, lets calls finish for
// a while, and ends.
func (s *Server) Stop(closeBehind func() error) error {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.srv.GracefulStop()
	}()
	var err error
	if closeBehind != nil {
		err = closeBehind()
	}
	timer := time.NewTimer(graceLimit)
	defer timer.Stop()
	select {
	case <-graceful:
	case <-timer.C:
		s.srv.Stop()
		<-graceful
	}
	<-s.done
	if err == nil {
		err = s.err
	}
	return err
}

// Ending comes when the server has stopped, by itself too.
func (s *Server) Ending() Ending {
	return Ending{s.done, func() error { return fmt.Errorf("the gRPC server at %s has ended: %w", s.Addr(), s.err) }}
}
