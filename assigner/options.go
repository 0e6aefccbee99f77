package assigner

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// How messages and streams are bounded.
const (
	// maxMessage bounds a message from a Distributor: a complete TaskReports of
	// the largest job there can be, reports left out.
	maxMessage = 64 << 20
	// helloWithin is how long a Distributor may take to introduce itself.
	helloWithin = 10 * time.Second
	// sendWithin is how long one message may wait for a Distributor to take it.
	sendWithin = 30 * time.Second
)

// ServerOptions are what the gRPC server that an Assigner is registered with
// should be made with: streams of Distributors that have died silently end
// within some seconds, and large jobs fit.
//
// A Distributor that is stopped for less than the ping's 5 s is never cut off. One that
// is for longer may be, at the price of attaching again: its tasks' timers restart, so
// none dies of it. To wait longer would cost more: tasks that went with their
// Distributor's host are not silent before its stream has ended, and so would die later
// by as much.
//
// Sessions of leases need no such ping: they are renewed, with a deadline for each renewal, and
// remote.DialOptions notices a front that is dead. But a server has one setting, and where lease
// times are at most 20 s no session is silent for 5 s. With 2,000 sessions of 30 s each, pings
// after 60 s in place of 5 s saved a front a fifth of its processor time and a tenth of its
// memory (test/bench/leases, Sessions): .014 of a core and 23 MB.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		// In TLS each connection keeps its buffer, and most are those of sessions of leases, idle
		// most of the time. What is larger is read past the buffer.
		grpc.ReadBufferSize(4 << 10),
		// Windows that are fixed need no pings to find their size with each report.
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
	}
}
