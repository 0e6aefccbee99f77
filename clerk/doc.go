// Package clerk tells a client which servers own a key (Slicer paper, section
// 2.3). It holds the job's newest assignment in memory, so a lookup takes tens of
// nanoseconds and needs nobody: requests find their servers while any part of
// Slicer is dead, or all of it.
//
//	c, err := clerk.New(clerk.Config{Job: "cache", Distributors: []string{"slicer:7000"}})
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
//			return clerk.Unreached{Err: err} // nobody has taken the request
//		}
//		return send(ctx, conn)
//	})
//
// In consistent mode only the owner serves a key, and for a moment, while a key
// moves, nobody does. A task refuses a request for a key that is not its own; send
// returns that as a Refused, and Do tries again at the newest owner, after
// milliseconds and then less often, until ctx ends. So give it a deadline. The
// adapters clerkgrpc and clerkhttp do the same with ordinary RPCs and HTTP
// requests; whoever writes another one uses AwaitOwner. The clerk learns the mode
// from the control plane, and takes no leases.
package clerk
