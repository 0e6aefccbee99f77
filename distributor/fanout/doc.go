// Package fanout decides what a Distributor does for one job: what to send to which
// subscriber, what to tell which assigner, and when. It has no clock, goroutine, lock or
// network: the time and what has happened come in as values, and what is to be done
// comes out. Package distributor, which has the streams, calls it with its job's lock
// held and carries out the decisions; the simulated cluster of test/cluster does the
// same on virtual time.
//
// Assignments go down, encoded once for all that are sent the same:
//
//   - Judge decides whether an assignment from an assigner takes the place of the one
//     that is held, and DeltaCache keeps it, with a few before it for deltas to start
//     from. Bases asks the assigner for an older one that many subscribers still hold.
//   - Progress is one subscriber's place: what it holds and what is on its way to it. It
//     decides between the whole assignment, a delta and nothing, one at a time, so that
//     a slow subscriber costs no queue.
//   - StatusPublisher holds what subscribers are told beside assignments, and when it is
//     repeated. Rebalancer decides how many connections to move to other Distributors.
//
// Reports and acknowledgements go up, merged:
//
//   - Reports keeps the newest report of each task until the assigner has it. Clients
//     keeps which clerks there are and the indexes that the assigner gives them.
//   - Convergence counts what the subscribers hold: how far the newest assignment has
//     come, how long it took, and which are late.
//   - Schedule decides which of these an assigner is due to be told. It keeps flags and
//     times, and no messages: what is sent is what is newest when the stream has room.
//
// Which assigner that is, of several that may disagree, is decided by Preferences;
// PreferenceView is what the assigners are told about it in return.
package fanout
