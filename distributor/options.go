package distributor

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/slicer-project/slicer/assignment/limiter"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// pingTimeout is how long a subscriber may take to answer a ping, or to acknowledge
// what it was sent.
const pingTimeout = 10 * time.Second

// ServerOptions are what a server with ten thousand subscribers on it should be
// made with: small buffers, since most connections are idle most of the time;
// pings that find dead subscribers within half a minute and are not offended by
// those of subscribers, at least 5 s apart. On a connection that came through Admit at
// most 1,000 calls are answered at a time, streams included; more are refused with
// RESOURCE_EXHAUSTED, and after 1,000 refusals the connection is closed. One identity, or
// without a certificate one address, has 20,000 on all of its connections, or twice
// bounds.tasks of its policy if that is more; refused more than 100 times a second, and 1,000
// times at once, it is refused all until it was refused less; from half of that on each call
// counts as refused. The server's tap handle is among the options. Distributors of the
// second tier are not limited so, and those that the policy of Config.Rights calls plane or
// proxies have 10,000 on each connection.
func ServerOptions() []grpc.ServerOption {
	return append(limiter.ServerOptions(slicerv1.SubscriberService_Watch_FullMethodName, slicerv1.RelayService_ServiceDesc.ServiceName),
		grpc.ReadBufferSize(4<<10),
		// Lent to a connection only while there is something to write.
		grpc.WriteBufferSize(16<<10),
		// What subscribers send is small: no window needs to grow.
		grpc.StaticStreamWindowSize(64<<10),
		grpc.StaticConnWindowSize(128<<10),
		// A Distributor of the second tier sends reports in batches.
		grpc.MaxRecvMsgSize(fanout.MaxBatch+fanout.MaxReport+64<<10),
		grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))
}
