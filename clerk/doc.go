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
// another owner if there is one, else any running task of Assignment.
package clerk
