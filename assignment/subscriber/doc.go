// Package subscriber is a subscriber's end of the watch: it brings the newest
// assignment of one job into the process and keeps it there. Clerks and
// slicelets are built on it.
//
// It promises:
//
//   - The newest generation that any server has sent is the one in hand. An
//     older one never takes its place; one from another store always does, since
//     the past of another store is another past.
//   - It streams from one Distributor at a time, in an order that differs from
//     client to client, and goes to the next when that one fails. When all have
//     failed it streams from a Backup Distributor, while it goes on trying the
//     Distributors, and returns as soon as one of them is in service (Slicer
//     paper, section 4.3).
//   - A slicelet whose Distributor is not heard by the job's preferred assigner looks
//     whether another is, and goes there. While none is it stays. One name may be that of
//     several Distributors: it goes on the connection on which it found the one.
//   - When no server is left, the last assignment stays. With a cache file it even
//     survives a restart, which the paper's library cannot.
//   - Whatever a server sends, it does not panic, and what is not proven by its
//     checksum is refused and asked for anew, whole.
//
// What is done when is decided by package protocol, a state machine without clock,
// goroutine or I/O: events and the time go in, actions come out. Subscriber carries them
// out.
//
//	s, err := subscriber.New(subscriber.Config{
//		Job:          "cache",
//		Role:         subscriber.Observer,
//		ClientID:     subscriber.NewClientID("inspector"),
//		Distributors: []string{"slicer-1:4720", "slicer-2:4720"},
//	})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	if err := s.Ready(ctx); err != nil {
//		return err
//	}
//	fmt.Println(s.State().Assignment.Generation())
package subscriber
