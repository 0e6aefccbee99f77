// Package clerk tells a client which servers own a key (Slicer paper, section
// 2.3). It holds the job's newest assignment in memory, so a lookup takes tens of
// nanoseconds and needs no other process: requests find their servers while any part of
// Slicer is dead, or all of it.
//
//	c, err := clerk.New(clerk.Config{Job: "cache", Distributors: []string{"slicer:4720"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	if err := c.Ready(ctx); err != nil {
//		return err
//	}
//	for task := range c.Lookup("user/4711").All() {
//		fmt.Println(task.Name, task.Address) // the first that answers will do
//	}
//
// A slice may have several owners: any of them serves its keys. An assignment
// spreads asynchronously, so a server may be asked for a key that has just left
// it or is about to come; in affinity mode it may answer all the same.
//
// When an owner does not answer, a client in affinity mode asks another task:
// another owner if there is one, else any running task of Assignment. Do does that:
//
//	err := c.Do(ctx, "user/4711", func(ctx context.Context, task assignment.Task) error {
//		conn, err := dial(ctx, task.Address)
//		if err != nil {
//			return clerk.Unreached{Err: err} // no server has taken the request
//		}
//		return send(ctx, conn)
//	})
//
// In consistent mode only the owner serves a key, and for a moment, while a key
// moves, none does. A task refuses a request for a key that is not its own; send
// returns that as a Refused, and Do tries again at the newest owner, after
// milliseconds and then less often, until ctx ends. So give it a deadline. The
// adapters clerkgrpc and clerkhttp do the same with ordinary RPCs and HTTP
// requests; another one uses AwaitOwner. The clerk learns the mode
// from the control plane, and takes no leases.
//
// A task may also lose a key while a request for it runs. It holds its answer back
// then, which send returns as a Lost: the request may have been carried out, so Do
// sends it again only if ctx is of WithIdempotent.
//
// What all users of a clerk send again is bounded: to other tasks a tenth of the
// requests (MayRetry, overload.OtherTasks), for reasons of ownership one for each
// (overload.Ownership). So a key that is too hot for its task does not take the
// others down, and an outage of an owner is not multiplied.
//
// # Pools of connections
//
// With hundreds of clients and servers, connections of each to each cost both sides
// memory and health checks. With Config.Subset a client keeps connections to Size of the
// tasks only, its [Subset]; the adapters clerkgrpc and clerkhttp do. Requests without a
// key go to tasks of the subset, those with one to an owner in the subset where a slice
// has several; an owner outside it is connected to when a request needs it, and
// disconnected when it has been idle.
//
// Which tasks those are follows from the tasks' indexes and from the client's own
// index alone (Rocksteadier subsetting, see package loadbalance/subset): no
// client knows of another, and yet servers have about equally many connections,
// subsets differ, and when servers are added or removed few connections change.
//
// The index comes from the control plane: the smallest that is free, given to the
// client's id for as long as it lives and a minute more. Dead assigners and
// Distributors do not change it. Config.Subset.Index sets it instead, as from the
// ordinal in a StatefulSet. A client that has none yet, because it has just
// started or because only a Backup Distributor is there, goes by a provisional
// one, derived from its id: its subset has the right size all the same, and only
// the balance is that of chance. With Config.CacheFile the index is remembered
// across restarts, together with Config.ClientID: clients that share the file, and
// clients whose id is the random default, do not take each other's.
//
// A subset is made of places. A task that starts or drains keeps its place in it,
// so that a drain reshuffles nothing; a dead task's place is left out, and a client that
// had it gets one other task until it is back.
package clerk
