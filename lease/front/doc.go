// Package front serves LeaseService in front of an etcd, to slicelets that have no
// credentials of it, and so many of them that each must not be a client of etcd.
//
//	f, err := front.New(front.Config{Store: open, LeaseTime: leaseTime})
//	...
//	f.Register(grpcServer) // for slicelets, which reach it with package remote
//
// # What is whose
//
// A session is an etcd lease of its own, and what it claims is put under that lease by the
// transactions of package etcdlease. The front renews nothing by itself: each renewal that
// a slicelet asks for is one keepalive, sent after it was asked for, and its answer is
// the slicelet's, which counts from when it asked. Keepalives of all sessions go over one stream,
// those of a few milliseconds together, and the records of a job are watched once for all its sessions.
//
// A front keeps nothing that is needed when it dies. A session is named by 16 random
// bytes that its holder alone is told; their hash is the name of a record in etcd, under
// the session's lease, by which any front of that etcd finds it. What finds out that an etcd has gone
// back to an earlier state, what the session has been told and holds, is kept by the
// slicelet, and comes with each renewal. So a front that does not know a session answers
// nothing but a renewal of it, and compares that memory with etcd before it renews.
//
// # What a front can break
//
// A front may be late, stand still, be cut off from etcd, restart, or tell of records that are
// old by now. That costs availability: a renewal that is answered late counts from when it
// was sent, one that is not answered counts for nothing, a claim is compared with the
// record in etcd's transaction whatever a watch has said, and what is carried out late is
// what the protocol calls an outcome that is unknown. None of that lets two slicelets believe in one key.
// What a slicelet does believe is what a front answers, though: one that says that it
// has renewed or acquired and has not, is no better than an etcd that does. So fronts run where the
// credentials of etcd are.
//
// # Sessions of others
//
// As with package serve, a process that can reach the service is not trusted beyond that.
// A session is bound to the identity of a TLS certificate, if there is one, and that identity
// has to have the right to own its jobs (Config.Rights), as the tasks that it names. The identity is in the
// session's record in etcd; the names of tasks come with its memory, and are asked about anew. In which
// jobs it holds claims is read off its etcd lease when it comes to a front, and each minute from then on, so
// that a job which it leaves out of its memory counts all the same: as no task, which {task} in a right needs. A
// session that holds something in a job that its holder may own no more is not renewed, at any front. Lease times are
// at most the jobs' lease_duration. A session that holds what was recalled is not renewed any more
// after lease_duration, and is over, with its etcd lease, a lease time later. There are
// bounds on sessions and watches, and on names that are no session's or job's.
package front
