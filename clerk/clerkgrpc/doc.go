// Package clerkgrpc routes the RPCs of ordinary gRPC stubs to the tasks that own
// their keys.
//
//	conn, err := grpc.NewClient("slicer:///cache", append(
//		clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: []string{"slicer:4720"}}}),
//		grpc.WithTransportCredentials(creds))...)
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//	client := pb.NewCacheClient(conn)
//	answer, err := client.Get(clerk.WithKey(ctx, "user/4711"), request)
//
// The key may also be in metadata that the program sends anyway, or in a field of the
// request (Config.KeyFields), or a function may find it there: see Config. The server learns it from the metadata
// KeyHeader, and from GenerationHeader, now and then, which assignment RPCs are routed by.
//
// # What happens to an RPC
//
// It waits for the first assignment, within its deadline. Then it goes to an owner
// of its key; if there are several, to one that is connected, in the client's
// subset, not draining and not failing, by Config.Policy. It waits while a
// connection is being made.
//
// When no owner can be reached, or takes longer than a second to accept a
// connection, an RPC of a job in affinity mode goes to another running task, the
// same one for the same key. In consistent mode it waits for the owner.
//
// An RPC that may have reached a task is not sent again, unless the retry policy
// of Config.ServiceConfig says so, or unless the task has refused it, in
// consistent mode: then it is sent to the newest owner until its deadline. A
// stream is sent again only if the task refuses it, there or for want of room, before the
// first message has come back and before more than eight have been sent.
//
// In consistent mode a task holds its answer back if it lost the key while it worked
// for it: the RPC fails with ABORTED (clerk.LostFromStatus), and has perhaps been
// carried out. It is sent again, as one that was refused, only if its context is of
// clerk.WithIdempotent, or if the retry policy of its method has UNAVAILABLE. Both say
// that it may be carried out twice, so a unary one does not wait either for a task
// that is said to be dead; of such RPCs as many go to the next owner as clerk.MayRetry
// allows, a tenth of all, and others fail with UNAVAILABLE. What gRPC's own retry policy
// sends again, to an owner as a rule, is bounded by that policy's retryThrottling.
//
// # Connections
//
// Tasks of the clerk's subset have a warm connection. Others get one when an RPC is
// to go there, and lose it when it is not used for Config.IdleClose. A client that sends nothing
// at all for so long closes the warm ones, too, and costs tasks nothing: from the control plane it
// knows which there are, and which drain or have no room. Its next RPC connects to its owner
// alone, and within a second all of the subset is connected to again, as it is at once by
// grpc.ClientConn.Connect. With
// Config.HealthCheck, a server that says NOT_SERVING in gRPC's health service gets
// no new RPCs, as if it could not be reached. Connections opened and closed are metrics of the clerk.
//
// # Clients that do not link it
//
// A Proxy takes RPCs of any service from stock clients in any language, finds their keys by
// rules, and sends them on: batch jobs dial it, so that they are sheddable, limited, and cost
// tasks no connections of their own.
//
// # What it stands on
//
// The package uses only public packages of grpc-go, of which resolver, balancer
// and orca are marked as experimental. No other package of Slicer uses them.
package clerkgrpc
