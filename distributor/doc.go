// Package distributor stands between the assigners, who decide, and the many
// subscribers, who want to know (Slicer paper, section 4.2). A subscriber, a clerk
// or a slicelet, speaks with one Distributor and needs to know nothing of
// assigners; an assigner speaks with a few Distributors and needs to know nothing
// of ten thousand subscribers.
//
//	d, err := distributor.New(distributor.Config{Assigners: []string{"assigner-1:7100", "assigner-2:7100"}})
//	server := grpc.NewServer(distributor.ServerOptions()...)
//	d.Register(server)
//	defer d.Close()
//
// Down goes the newest assignment of each job: to each subscriber as a delta on
// what it holds, or whole, encoded once for all who stand on the same base. A
// subscriber is sent one assignment at a time and the newest after that, so that
// a slow one costs no queue and holds up nobody. Within one store nobody is ever
// sent an older generation than it holds; when a subscriber is ahead, the
// assigners are told how far.
//
// Up go what slicelets report, the newest of each, how far the subscribers have
// come, and which clerks there are: to the job's preferred assigner, and to nobody
// else. Who that is the assigners say; where they differ the newer view counts.
// When it moves, the next one is first told everything. Down come the clerks'
// indexes, by which they pick their subsets of tasks: each is told its own, once,
// in a status; a status without one takes none away.
//
// Beside its own protocol it speaks gRPC's, to clients that have none of our code:
// see package autosharding below this one.
//
// A Distributor keeps nothing on disk and survives what it depends on: with all
// assigners dead it goes on serving what it holds (section 4.3), and keeps trying
// to reach each of them. What only an assigner can know it leaves to them: a job
// is unknown when an assigner says so; when nobody can say, the status is
// UNAVAILABLE, and the subscriber turns to the Backup Distributor.
//
// Inside, what has to be decided is decided by plain state machines that are
// given the time and know no goroutine (preferences, convergence, progress,
// reports, upstream, board); jobs, subscriptions, attachments and links carry it
// out.
package distributor
