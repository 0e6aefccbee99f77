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
// kept: they live in memory and end with the process. So that nothing that was held
// before can be overtaken, each job's lease duration is made durable before a
// session is granted for it, and after a restart no session is granted for
// the job, and no assigner may lead it, until that has passed; sessions from
// before are unknown, and are told that they are lost. What the job's lease duration
// is now is waited for besides, since the storage may be an older copy that was
// put back. That falls short only if the lease duration was made longer after the
// copy was taken: then wait for the longer one before the start.
//
// # Sessions of others
//
// A process that can reach the service is not trusted beyond that. A session that
// is opened over gRPC is named by 16 bytes from crypto/rand, which its holder alone is told
// and which every call carries, so that it goes on over another connection; with TLS
// it is bound to the identity of the certificate besides. Sessions of this process,
// the assigner's among them, have no such name. What a stranger can do:
//
//   - open sessions, up to MaxConnectionSessions over a connection and MaxPeerSessions of
//     an identity, or of an IP address without TLS, for jobs that exist and that it
//     may own (Config.Rights);
//   - hold claims there, for at most the job's lease duration past their recall,
//     whether or not it renews the session: then the session is over, as the
//     renewals grant no more than that. It is never ended sooner than its last
//     answer said, so a reader that goes by its own deadline loses nothing early.
//
// It can neither read nor guess another's session, and in plain text whatever
// reads the network can do both.
//
// Time is CLOCK_BOOTTIME, as for readers: a lease runs out also while the machine is suspended.
package serve
