// Package slicertest lets a service that is sharded by Slicer be tested without Slicer: in the
// test's process, in memory, without network, and on the test's own time.
//
// An Env is a control plane that does what the test says. Clerks and slicelets are the real ones;
// they connect to it as they would to a Distributor. It has no store and does not balance: the test
// says which task owns which keys, and all that are concerned know it when the call returns.
//
//	func TestProfileMoves(t *testing.T) {
//		env := slicertest.New(t) // ends with the test
//		a := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-0"})
//		b := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-1"})
//		c := env.Clerk(clerk.Config{Job: "cache"})
//		env.Assign("cache", slicertest.Key("ada", "cache-0"))
//		...
//		env.Assign("cache", slicertest.Key("ada", "cache-1")) // a, b and c know, and listeners have returned
//	}
//
// Until the first Assign the keys of a job are spread over its running tasks in equal parts, in
// order of name, whenever one comes or begins to drain. From then on they move only by Assign, by
// Expire, which is the death of a task, and by drains: a task that drains gives its keys to the others,
// so that programs end as they do in earnest. Jobs exist as soon as they are named. They are in
// affinity mode, unless the test says otherwise, with the defaults of a job's config.
//
// Servers of the test listen on the Env's network (Listen) or on a real one, as they like.
// DialOptions and DialContext lead to the former. Loopback is for programs of their own.
//
// # Steps in between
//
// While an assignment spreads, some have it and others do not. Hold keeps one clerk or slicelet at
// what it has, so that a test sees a client that is behind its servers, or a server that is behind its
// clients, for as long as it likes.
//
// # Consistent mode
//
// Consistent puts a job into it, and its slicelets get leases of the environment: Assign returns when the change is in
// force. Lose takes a task's leases away, as they are lost by a process that is stopped for longer than they
// last, and no lease is lost otherwise, so that a test stops its server where it likes: before a write, say,
// that the next owner overtakes.
//
//	env.Consistent("accounts")
//	a := env.Slicelet(slicelet.Config{Job: "accounts", Task: "accounts-0"})
//	...
//	regain := env.Lose("accounts-0") // a owns nothing, and no handle of it is good
//	env.Assign("accounts", slicertest.Key("ada", "accounts-1"))
//	regain()
//
// # Time
//
// All waits are on channels of the process, so an Env runs in a bubble of testing/synctest: time
// passes there only when all goroutines wait, a drain's pause of half a second takes none, and
// synctest.Wait returns when all that follows from an Assign has happened, in connections of
// clerkgrpc as well. Make the Env inside of the bubble, and use the Env's network there, since a
// goroutine that waits for a real connection keeps time from passing. What a test has made itself it
// also closes inside of the bubble: gRPC connections and servers, idle connections of an
// http.Transport.
//
//	synctest.Test(t, func(t *testing.T) {
//		env := slicertest.New(t)
//		...
//	})
//
// # Without an Env
//
// For code that takes a *clerk.Clerk or a *slicelet.Slicelet and needs no change of owner, give it
// one with an assignment that stands: it connects to nothing.
//
//	c, err := clerk.New(clerk.Config{Job: "cache", Static: slicertest.Assignment("cache", slicertest.Spread("cache-0", "cache-1"))})
package slicertest
