// Package fanout decides what a Distributor does for one job: what to send to which
// subscriber, what to tell which assigner, and when. It has no clock, goroutine, lock or
// network. Job.Step takes the time and an Event (a subscriber came, reported or
// acknowledged, an assigner sent an assignment, the timer ran out) and returns the
// Actions that follow (wake a subscriber, end a stream, notify an assigner, set the
// timer). Package distributor, which has the streams, calls it with its job's lock held
// and carries the actions out. The same events give the same actions.
//
// What is sent is asked for when there is room for it, so that a slow stream costs no
// queue and gets what is newest by then:
//
//	subscriber lacks something    → Wake     stream has room → Ready     → Send, again and again until there is none
//	assigner is to be told        → Notify   stream has room → PeerReady → Tell
//
// The transcripts in testdata show it event by event: deltas, slow-subscriber, reports and
// restart are good to begin with.
//
// A Job joins parts that know nothing of each other. Assignments go down, encoded once
// for all that are sent the same:
//
//   - judge decides whether an assignment from an assigner takes the place of the one
//     that is held, and deltaCache keeps it, with a few before it for deltas to start
//     from. bases asks the assigner for an older one that many subscribers still hold.
//   - progress is one subscriber's place: what it holds and what is on its way to it. It
//     decides between the whole assignment, a delta and nothing, one at a time.
//   - parts.go: of a large job slicelets are sent the part for their task, which is encoded for
//     each alone and costs what is in it, after one pass over the slices of each generation.
//   - statusPublisher holds what subscribers are told beside assignments, and when it is
//     repeated. rebalancer decides how many connections to move to other Distributors.
//
// Reports and acknowledgements go up, merged:
//
//   - reports keeps the newest report of each task until the assigner has it. clients
//     keeps which clerks there are and the indexes that the assigner gives them.
//   - convergence counts what the subscribers hold: how far the newest assignment has
//     come, how long it took, and which are late.
//   - schedule decides which of these an assigner is due to be told. It keeps flags and
//     times, and no messages.
//
// Which assigner that is, of several that may disagree, is decided by Preferences for all
// jobs; PreferenceView is what the assigners are told about it in return.
package fanout
