// Package serve keeps the leases of consistent mode in this process, for
// `slicer serve` and `slicer demo`, which have no etcd. Assigners of the process use the Store
// directly; slicelets reach it over gRPC with package remote.
//
//	leases, err := serve.Open(ctx, serve.Config{Storage: storage})
//	...
//	leases.Register(grpcServer)                        // for slicelets
//	session, err := leases.OpenWriter(ctx, 5*time.Second) // for the assigner
//
// Records are durable before a step is answered. Sessions and holders are not
// kept: they live in memory and end with the process. So that nobody who held
// something before can be overtaken, the longest lease time is made durable
// before it is first granted, and after a restart no session is opened, and so
// nothing acquired or changed, until all of it has passed; sessions from
// before are unknown, and are told that they are lost. A store that is closed when no session
// is left starts again at once.
//
// Time is CLOCK_BOOTTIME, as for readers: a lease runs out also while the machine is suspended.
package serve
