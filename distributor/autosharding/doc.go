// Package autosharding serves gRPC's own auto-sharding protocol (gRFC A119, a
// draft): with it a stock gRPC client in any language, whose load balancing
// policy is autosharding_experimental, is sharded by Slicer without any of
// Slicer's code. A Distributor serves it beside its own protocol:
//
//	s, err := autosharding.New(autosharding.Config{Source: distributor})
//	s.Register(server)
//	defer s.Close()
//
// # What a client sees
//
// The target is the name of a job. Keys are slice keys in text form, 16 lower-case
// hex digits, so that the protocol's order of bytes is the order of numbers; the
// client puts the key in the request header that its configuration names. Endpoint
// names are the tasks' addresses, or what Config.Endpoint makes of their names:
// they have to equal what the client's resolver calls them.
//
// What lies before 0000000000000000 and from 8000000000000000 on is no slice key: it is
// sent as two slices without an endpoint, so that no client remarks on a gap, and an RPC
// of a client that sends raw keys by mistake fails, for most of them, even if the client
// may fall back. (Package sliceletgrpc refuses the others.) A remark in an
// acknowledgement thus means something: the newest is shown by slicerctl inspect.
//
// A task may have several names, since clients in different languages call one address
// differently; a client drops those that it does not know. See Config.Endpoint.
//
// An assignment comes whole, never as a delta, in messages below 1 MiB and then
// its generation. It is encoded once for all clients of the job. The protocol has
// no way to abandon one half-way (the client joins all chunks before a
// generation), so what has been begun is finished; the next is the newest by then,
// and waits for the acknowledgement of the one before. A slow client so costs one
// assignment on its way, whatever else has come since. One that neither reads nor
// acknowledges for two minutes has its stream ended, with DEADLINE_EXCEEDED; it may
// connect again.
//
// No generation follows a higher one: to a client that says that it has the newest
// nothing is sent until there is a newer one, and when it has a newer one than the
// Distributor, the assigners are told and go on from there.
//
// # Which clients are waited for
//
// A client counts as a clerk: a generation has converged, and a drain may end, when the
// connected clients have acknowledged it too. One that refuses an assignment goes on with
// its old one, and would hold up every drain for as long as it lives. So nothing waits
// for it until it next accepts one; it is counted, its words are logged (every 10 s at
// most for a job) and shown by slicerctl inspect, and the generation is not sent to it
// again. Drains still wait until no requests arrive at the task.
//
// # Jobs in consistent mode
//
// They are served. That at most one task owns a key is ensured by the leases of
// the tasks, whatever a client believes: a task refuses what it does not own, with
// UNAVAILABLE. A stock client tries again only if its service config says so, with
// a retryPolicy for UNAVAILABLE; each attempt picks anew.
//
// # Load
//
// Load is measured by slicelets, where it arises. Clients are asked for it (by a
// LoadReportingConfig) only if none of the job's tasks has measured any itself 15 s
// after the client has come, or later: such as of a slicelet that stands beside a
// server in another language. Their reports are used for tasks that have measured
// nothing since they connected: never twice. See [Loads]. Reports that come unasked are
// taken all the same.
package autosharding
