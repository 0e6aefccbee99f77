package distributor

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// pingTimeout is how long a subscriber may take to answer a ping, or to acknowledge
// what it was sent.
const pingTimeout = 10 * time.Second

// ServerOptions are what a server with ten thousand subscribers on it should be
// made with: small buffers, since most connections are idle most of the time;
// pings that find dead subscribers within half a minute and are not offended by
// those of subscribers, at least 5 s apart.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(4 << 10),
		// Lent to a connection only while it has something to write.
		grpc.WriteBufferSize(16 << 10),
		// What subscribers send is small: no window needs to grow.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(128 << 10),
		// A Distributor of the second tier sends reports in batches.
		grpc.MaxRecvMsgSize(maxBatch + MaxReport + 64<<10),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
}
