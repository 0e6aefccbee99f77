// Package sliceletgrpc puts a slicelet in front of an ordinary gRPC server's
// handlers.
//
//	s, err := slicelet.New(slicelet.Config{
//		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: []string{"slicer:4720"},
//	})
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(sliceletgrpc.ServerOptions(s, sliceletgrpc.Config{})...)
//	pb.RegisterCacheServer(server, cache)
//	h := health.NewServer()
//	healthv1.RegisterHealthServer(server, h)
//	go server.Serve(listener)
//	<-terminated
//	return sliceletgrpc.Drain(ctx, s, server, h)
//
// Listen before slicelet.New: from then on clients may come.
//
// To be served at an even pace while very many clients connect at once, serve on what Listener
// makes of the listener.
//
// Each RPC with a key is counted as load (Slicelet.Handle), and its handler finds
// the slicelet.Handle with HandleFrom. The key is in the metadata that
// clerkgrpc sends, or in other metadata, or in a field of the request, or a function finds
// it there: see Config. Stock gRPC clients that are sharded by Slicer (gRFC A119) send the slice
// key instead, in SliceKeyHeader, which counts as much.
//
// An RPC for a key that the task does not own is misrouted. In affinity mode it is
// served and counted; in consistent mode it is refused with UNAVAILABLE and a
// slicerv1.Refusal, upon which clerkgrpc asks the owner. The metric of misrouted
// RPCs reports whether the client was behind (it routed by an older assignment than
// this task holds) or ahead.
//
// # Answers in consistent mode
//
// An answer is let out only if the task has owned the key at every moment since the
// RPC came (slicelet.Handle.AssignedContinuously); an error that the handler returns
// is an answer too. Otherwise the client gets ABORTED with a slicerv1.OwnershipLost
// (clerk.Lost). In a stream this is looked at before each message that is sent and at
// the end, and what was sent before stays sent. Metadata that the handler sets are
// sent as they are. Config.UncheckedAnswers switches it off.
//
// So a read that is answered was answered by the key's owner. A write is another
// matter: the handler has run, so the write has happened, or may happen yet, and that
// its answer is held back takes nothing back. Only a store that compares
// Handle.FencingToken refuses it. Clients therefore send such an RPC again only if it
// is marked as safe to carry out twice (clerk.WithIdempotent).
//
// # Long streams
//
// A stream goes on at the task at which it has begun, wherever its key is by then; in consistent
// mode nothing is sent on it any more once the key is lost. Config.EndMoved ends it when its key has
// moved, or when the task drains, in both modes, so that its client connects to the new owner.
// A handler that has something to say or to save before listens to Moved.
//
// The client of such a stream gets an error by which clerk.LostFromStatus finds a clerk.Lost: it
// opens the stream again, and clerkgrpc brings it to the owner. A stream that is marked as safe to
// carry out twice (clerk.WithIdempotent) and has brought no message yet clerkgrpc opens again by
// itself.
//
// # When there is no room
//
// If the job's admission is on, RPCs that the task has no room for are refused before a
// message is decoded or a goroutine started, the least critical first: more is asked of it
// than it can do, by how long RPCs wait to be started or by slicelet.Config.Signals, or the
// RPC's deadline would pass. If it reports, they are only counted. Config.NoTap switches it
// off. While there is no room for all, answers say below which priority RPCs are refused
// (LevelHeader): clerkgrpc holds those back, but for trial requests.
//
// A handler that has no room for an RPC returns the error of Overloaded before it has done
// anything. Where another owner of the key may have room clerkgrpc asks that, within its
// budget for retries (clerk.Clerk.MayRetry); where there is none, or where many of the RPCs
// that arrive have been sent before, the error says that there should be no retry, and
// clerkgrpc and gRPC's own retries heed that. A server that is itself a client passes such
// an error on as it is: only the layer just above the task without room retries.
//
// # Labels
//
// An RPC says how critical it is, its cohort, and what it is charged to
// (overload.LabelsOf): the handler's context has them, with the job's default criticality
// and a cohort by chance where the RPC says none, so that RPCs that the handler makes with
// that context say the same.
//
// # Load
//
// In a job balanced by CPU an RPC counts by how long its handler works; in a stream that
// is the time before each message that it sends or begins to wait for. A stream
// that sends on a timer seems to work in between.
//
// Latency and errors by method are metrics. The process's utilization goes to
// clients in the trailers of RPCs (ORCA load reports, ten a second on each connection), for
// clients that choose by it: clerkgrpc with policy.WeightedLeastLoaded, its default, or
// policy.Weighted, or gRPC's weighted_round_robin. The first of these also goes by the named
// metric slicer.in_flight, the unary RPCs under way. Of RPCs those
// count that were answered with OK, so that a task that fails at once does not look
// quick. Those with UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED,
// INTERNAL, UNAVAILABLE and DATA_LOSS count as errors; others, and those that are
// refused since the key is not the task's, as neither.
//
// Handlers that report metrics of their own by package orca need Config.CallMetrics.
//
// # Goroutines
//
// The server keeps some goroutines waiting for RPCs (grpc.NumStreamWorkers), which end with
// grpc.Server.Stop or GracefulStop.
package sliceletgrpc
