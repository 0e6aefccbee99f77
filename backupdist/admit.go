package backupdist

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/limiter"
)

// pingTimeout is how long a client may take to answer a ping, or to acknowledge what it
// was sent.
const pingTimeout = 10 * time.Second

// Admit returns a listener for the server that Register is called with to serve on in
// place of lis. It hands out connections no faster than they can be set up, those of
// different addresses in turn; those of which nothing has come wait apart from the
// others, 512 of each address and for 10 s. Its Close closes lis.
func (s *Server) Admit(lis net.Listener) net.Listener {
	return s.handshakes.Listener(lis, pingTimeout)
}

// acquireFor is acquire for the peer of a call, whose names of jobs that no store has are
// limited.
func (s *Server) acquireFor(ctx context.Context, name string) (*job, error) {
	j, err := s.acquire(name, limiter.KeyOfContext(ctx))
	if status.Code(err) == codes.ResourceExhausted {
		limiter.HandshakeOf(ctx).Refuse()
	}
	return j, err
}
