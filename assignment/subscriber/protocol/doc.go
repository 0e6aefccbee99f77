// Package protocol is a subscriber's end of the watch as a pure state machine: which
// server to connect to and when, what to take of what it sends, and what to answer. An
// event and the time go into a method of Core, actions come out of Actions:
//
//	c := protocol.New(cfg, nil, 0, -1)
//	c.Start(now)
//	for _, a := range c.Actions() { ... } // dial d1 as link 1
//	c.Linked(now, 1)                      // send a hello
//	c.Received(now, 1, m, nil, nil)       // publish, acknowledge
//	c.Tick(c.Wake())
//
// Package subscriber carries the actions out on real connections, the simulated cluster
// (test/cluster) on a network of its own. The same events give the same actions; the
// transcripts in testdata show which.
package protocol
