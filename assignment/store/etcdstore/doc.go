// Package etcdstore keeps assignments and job configs in etcd, for any number of
// assigners and backup distributors at once.
//
//	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{"10.0.0.1:2379"}, Prefix: "/slicer"})
//
// # Keys
//
// All keys lie under the prefix:
//
//	id                                   the store's identity, made once
//	jobs/JOB/config                      config and version
//	jobs/JOB/head                        newest generation and its checksum, the kept segments
//	gone/JOB                             last version, generation and order of a deleted job
//	generations/JOB/GENERATION           one generation, with its delta if that is short
//	chunks/JOB/GENERATION/ATTEMPT/NAME   pieces of 512 KiB of what is longer
//	attempts/JOB/GENERATION/ATTEMPT      marker of a write under way
//	assigners/ID                         a registered assigner, under its etcd lease
//
// Every value is sealed with a checksum over itself and its key. Stores in one
// etcd need prefixes of which none is the beginning of another's path. What else
// lies under the prefix is left alone: records of leases, which compare with and
// are compared by the heads, belong beside these.
//
// # Writing
//
// A write moves the job's head by one transaction, which compares that the head
// is the one that was read, that the job exists, and that the store is the one
// that was opened. Mostly it carries all there is to write: the head, the
// generation's record with its delta, and, every 64 generations or when the
// deltas have grown as long as the whole, a checkpoint. So a write is one
// request, and costs the delta.
//
// What does not fit (more than 512 KiB beside the delta) is put first, piece by piece,
// under a random attempt id: the first piece comes with a marker, each other one compares
// that the marker is there, and so does the transaction that moves the head, which takes
// the marker away. So every piece is, at any time, either named by a marker or by the
// head's generations. No reader sees a piece before the head names it, and a process that
// dies leaves a marker behind.
//
// Dead attempts are collected by any process that writes, which looks at the
// markers about once a minute: one that it has seen for two minutes, by its own
// clock, stands for an attempt that is dead, since a write gives up after one.
// Marker and pieces go together, in one transaction. Should the attempt be alive
// against all odds, it can neither move the head nor put pieces any more.
//
// Generations that are kept no longer go with the write that makes them so. The
// newest Keep ones always stay, with all that they are built on; a job in
// consistent mode never has a head more than one generation ahead of what its
// leases name, so these stay too.
//
// # Reading
//
// A reader remembers the newest assignment of each job. Following costs one
// request, and the deltas since; a first read takes head, checkpoint and deltas
// at one revision of etcd, and begins again should that be compacted away.
package etcdstore
