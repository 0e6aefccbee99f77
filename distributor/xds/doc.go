// Package xds serves xDS (the aggregated discovery service, state of the world) to stock
// gRPC clients, so that a client in any of gRPC's languages that dials xds:///JOB is sharded
// by Slicer without any of its code. A Distributor serves it beside its own protocol:
//
//	s, err := xds.New(xds.Config{Source: distributor})
//	s.Register(server)
//	defer s.Close()
//
// # What a client sends
//
// With each call two headers: slicer-key, the application key, by which servers meter and
// check; and slice-key, the slice key in text form (16 lower-case hex digits), by which the
// client's routes choose.
//
// # What it is sent
//
// The Listener and the RouteConfiguration are named JOB; a job that does not exist has
// none. There is one route for each set of owners, with a regular expression over the slice
// key, since clients look at one route after the other: what a call costs so hardly depends
// on the number of slices. The ends of slices are cut to 8 digits, 2^-31 of the keyspace, but
// the first and the last key of each, and all keys of slices that are narrower, such as that of
// one hot key, are told apart at full width. An expression leaves out what the routes behind it
// are to take, and may have in it what those before have taken, which makes it half as long. A
// set of several owners is a weighted choice by the tasks' weights. What no route takes, such
// as a call without a key, goes to JOB/any, or fails if the job's config says refuse.
//
// A route leads to the cluster JOB/own:NAME.INCARNATION, which is JOB/task:NAME.INCARNATION,
// the task's address, and where that cannot be reached JOB/any: so many running tasks (20)
// as a client may connect to, chosen by its node id. A call that finds no connection, or
// loses it before an answer, is sent again up to four times (by the routes' retry policy, of
// which the job's config says more), which takes it there. That is affinity mode's bargain, so jobs in consistent mode are refused.
//
// Draining tasks are like others as clusters of their own: their slices move, and that is
// the drain. Clusters of tasks that have departed stay known for 10 s. A Distributor that has
// just come to know a job does not know which had departed: for as long, the cluster
// JOB/own:NAME.INCARNATION of a task that is not there is JOB/any.
//
// # When it is sent
//
// Resources of a generation are marshalled once for all streams. A type of resources is sent
// when one that the client asked for has changed: a slice that moves costs a
// RouteConfiguration and nothing else. Nothing is sent before the last answer of that type,
// nor changes more than once a second; what a client asks for anew is answered after 10 ms.
// What a client refuses is not sent again; the next change is.
//
// Routes that lead to clusters which the routes before do not name are announced: the client
// is first sent the routes before with one more, which no call takes and which names the new
// clusters, and the new routes when it has these clusters, or after 5 s. A client that comes with
// the routes of an earlier stream is sent none before it has asked for clusters and was told of
// them, or for 5 s. If it has not asked for some, it is first sent the new routes with others in
// their places, and these announced.
//
// # Which clients are waited for
//
// A client counts as a clerk from when it accepts the routes of a job, or says when it comes
// that it has some: it holds the generation whose routes it has accepted, or a newer one with
// the same routes. One that refuses is counted and shown by slicerctl inspect, and nothing waits for it. One that
// neither reads nor answers for two minutes has its stream ended.
//
// # Which jobs are refused
//
// Jobs in consistent mode; with more than MaxSlices slices, those between which nothing
// changes counting as one; with more than MaxOwnerSets sets of owners. The log and slicerctl
// inspect say so. A client that comes finds no Listener, one that was served before keeps
// what it has.
package xds
