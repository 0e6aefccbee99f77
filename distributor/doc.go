// Package distributor stands between the assigners, which decide, and the many
// subscribers, which want to know (Slicer paper, section 4.2). A subscriber, a clerk or a
// slicelet, speaks with one Distributor and needs to know nothing of assigners; an
// assigner speaks with a few Distributors and needs to know nothing of ten thousand
// subscribers.
//
//	d, err := distributor.New(distributor.Config{Assigners: []string{"assigner-1:7100", "assigner-2:7100"}})
//	server := grpc.NewServer(distributor.ServerOptions()...)
//	d.Register(server)
//	go server.Serve(d.Admit(listener))
//	defer d.Close()
//
// The newest assignment of each job goes down: to each subscriber as a delta on what it
// holds, or whole, encoded once for all that hold the same base. A subscriber is sent one
// assignment at a time and the newest after that, so that a slow one costs no queue and
// holds up no other. Within one store no subscriber is ever sent an older generation than
// it holds; when a subscriber is ahead, the assigners are told how far.
//
// What slicelets report, the newest of each, goes up to the job's preferred assigner
// alone, and so does how far the subscribers have come and which clerks there are. The
// assigners say which one that is; where they differ the newer view counts. When another
// becomes preferred, that is first told everything. The clerks' indexes, by which they
// pick their subsets of tasks, come down: each clerk is told its own, once, in a status;
// a status without one takes none away.
//
// # The second tier
//
// Where there are more Distributors than the assigners, or the network to them, should
// send assignments to, some are given Upstreams in place of Assigners: they are of the
// second tier, and those that they name, which have to be told to take them
// (ServeDistributors), of the first. Each is attached to all of its Upstreams. It asks
// one of them for the assignments of a job, another when that one is lost, and is sent
// what subscribers there are sent: the same encodings, deltas on what it holds, and older
// assignments as bases of its own subscribers' deltas. What it has to tell an assigner
// (tasks and their reports, how far its subscribers are, its clerks, which assigners it
// takes for preferred) passes through the first tier as it is, on a stream of its own for
// each assigner, and so does what assigners answer. To an assigner it is a Distributor as
// any other, acknowledged or not by itself: so a Distributor that is lost or stopped
// takes no tasks along in either tier. To subscribers there is no difference at all.
//
// There are two tiers and no more. A Distributor of the second refuses to be an upstream,
// as does one of the same ID, so that none is upstream of itself, directly or through
// others; one that is refused logs why and is not Ready. With all Upstreams dead it
// serves what it holds and goes on trying them, as one of the first tier does without
// assigners; with all assigners dead it is still sent what the first tier holds.
//
// What slicelets report is of no use while the job's preferred assigner does not hear
// this Distributor: it may be cut off from that one alone, in one direction or in both.
// Each assigner says every second that it hears; when the preferred one has not for some
// seconds, or cannot be reached, the status says so, and slicelets look for another
// Distributor. One that no assigner hears goes on serving assignments.
//
// Beside its own protocol it speaks gRPC's, and xDS, to clients that have none of our code:
// see packages autosharding and xds below this one.
//
// A Distributor keeps nothing on disk and survives what it depends on: with all assigners
// dead it goes on serving what it holds (section 4.3), and keeps trying to reach each of
// them. What only an assigner can know it leaves to them: a job is unknown when an
// assigner says so; when none can say, the status is UNAVAILABLE, and the subscriber
// turns to the Backup Distributor.
//
// Inside, what has to be decided for a job is decided by package fanout below this one,
// which is given the time and has no goroutine; jobs, subscriptions, attachments and
// links tell it what happens and carry out what follows.
package distributor
