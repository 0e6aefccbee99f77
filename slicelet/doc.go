// Package slicelet tells a server which keys it owns, and Slicer how much load
// they bring (Slicer paper, section 2.2).
//
//	s, err := slicelet.New(slicelet.Config{
//		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: []string{"slicer:4720"},
//	})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	http.HandleFunc("/profile", func(w http.ResponseWriter, r *http.Request) {
//		h := s.Handle(r.URL.Query().Get("user")) // counts the request
//		answer := lookUp(r)
//		if !h.AssignedContinuously() {
//			// the key is or was another task's: do not cache the answer
//		}
//		w.Write(answer)
//	})
//
// A server may ignore ownership and answer whatever arrives: then Slicer only
// makes it faster, by sending the same keys to the same server. IsAffinitized
// finds misrouted requests. Handle is for servers that keep state about their
// keys: AssignedContinuously reports whether the key has been theirs without a
// break, and FencingToken proves it to a store.
//
// In affinity mode ownership is what the newest assignment says that has
// arrived here; for a moment, while an assignment spreads, two tasks may believe
// that they own a key. It survives the death of Slicer: the last assignment
// stays, and with a cache file even a task that is restarted while Slicer is dead
// goes on with its predecessor's slices. As long as the mode of the job is not
// known the task owns nothing.
//
// # Large jobs
//
// From assignment.PartFrom slices on, a slicelet is sent the part of each assignment that its task
// needs, kilobytes instead of some 30 bytes for each slice of the job: what it owns, with replicas
// and since when, and for listeners from whom keys have come and to whom they go. That a key outside
// of it is not owned is certain; whose it is, is not known. In consistent mode a belief is decided
// from the part as from the whole: it asks of a key only whether this incarnation is its one owner,
// in the assignment of the guard, or in both of the bridge, and a part has exactly the slices that
// the task owns, with all their replicas, under the whole's generation and store. Where a
// Distributor does not know what the slicelet held before (it has just started, or the store was
// reset), listeners are not told whose keys were; and one that is told late learns to whom keys went
// when they went. Config.WholeAssignment asks for the whole.
//
// # Consistent mode
//
// In a job in consistent mode at most one task ever believes in a key, whatever
// dies, stops or is cut off (section 4.5). That takes leases as well as
// assignments, so give the slicelet a Reader, one for the whole process:
//
//	store, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: etcd}) // or remote.New(conn)
//	...
//	leases, err := lease.NewReader(lease.Config{Readers: store})
//	...
//	defer leases.Close() // after the slicelet
//	s, err := slicelet.New(slicelet.Config{..., Leases: leases})
//
// Only the program that does so links a lease store. All else stays as it is:
//
//   - Handle and AssignedContinuously read the clock each time (tens of
//     nanoseconds) and are good only until the local deadline,
//     which lies before the store's.
//   - A request for a key that is not owned is to be refused: the client asks the
//     owner (see clerk.Refused). It counts as misrouted, and as load.
//   - A newer assignment that arrives is put to use when its turn comes; meanwhile
//     the keys that it leaves alone stay owned, and handles to them valid.
//   - When the lease is lost, all keys depart: the Listener is told at the local
//     deadline, lease.Config.Margin before another task can own them.
//   - What the task writes to a store while it owns a key may arrive when it does so
//     no longer. FencingToken, which is for that, has an example.
//   - With all of Slicer dead nothing changes, for as long as the lease store lives;
//     with the lease store dead nothing is owned after the lease time.
//   - A task that restarts owns nothing until it is assigned something.
//
// # State that moves with its keys
//
// A listener (Listen) is told which keys come and go, from which tasks and to which, so that a
// new owner can fetch their state from the old one, or the old one send it. Tasks learn of an
// assignment at different times, so both have to agree on which has the state: see the example
// in test/examples/handover, which moves a map through rolling restarts. Until its ranges have
// been fetched a task has to stay: Drain waits until the listener that is told the last
// departure has returned, and a server that goes on serving after Drain can be asked. The state
// of a task that dies is gone.
//
// # Starting
//
// A server that has to load or to compute something before it can answer is a task with
// Config.Starting: it joins, clients connect to it, and nothing is sent to it until it says
// that it has Started.
//
// # Shutting down
//
// Drain, which moves the slices away and waits until clients and
// listeners know; then stop serving; then Close.
package slicelet
