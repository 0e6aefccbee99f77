// Package membership knows which tasks a job has: which run, which drain, which are dead,
// which are refused, and which index each has. It is pure: what Distributors say, what is
// stored, and the time come in as values; a Table and the Events that explain its changes
// come out.
//
// # Death
//
// A task is dead when its reports have stopped for the job's heartbeat timeout while a
// connected Distributor could have carried them. So the table counts silence only on
// evidence: up to the moment at which a Distributor that could have brought a report was
// itself last heard. A Distributor that is stopped or cut off takes no task along. In
// particular
//
//   - losing the Distributor by way of which tasks are heard of restarts their timers,
//     and gives them at least Config.Regroup to be heard of by way of another;
//   - a new table declares no task dead before each attached Distributor has sent a
//     complete snapshot (or has failed to for a bounded time);
//   - while no Distributor is connected no task dies;
//   - when the assigner itself was stopped for a while, all timers restart;
//   - a broken stream alone is not death, but the end of a stream whose task had
//     drained and owns nothing is a goodbye, and removes it at once;
//   - late reports revive no task: an incarnation that was dead or superseded has to go
//     on reporting for a while before it counts again.
//
// When a large part of the job falls silent at once the fault is more likely on the way
// to the assigner, and the table freezes: no task is declared dead until they are heard
// again or the freeze has lasted long enough. Only a report made since is a sign of life:
// timers that restart, with a Distributor say, neither end a freeze nor prolong it.
//
// A task that keeps dying, or restarting without having drained, is damped: each time it
// comes back it has to stay up for longer before it may own slices, unless there is no
// other task to own them. See assignment.DampingConfig.
//
// # Names and indexes
//
// A task restarts as a new incarnation of its name. While the older incarnation
// lives, a newer one is refused as soon as a report proves that the older lives;
// it takes over when the older one's stream has ended or it is dead.
//
// Where Distributors say under which identities tasks have joined, a name is the identity's
// that holds it, as long as the task lives and for Config.HoleAge from then on: what comes in
// the name from another one is refused, and counts for nothing. Holders are those names for another
// table to go on from, with Hold: one that is to Expect them takes no name for an identity's before.
//
// Indexes are small and dense. A returning name reclaims its own, a new one takes
// the smallest free. The holes that leavers leave are kept for a while, then
// closed one at a time when they pass a tenth.
//
// # Time
//
// All times are durations on one monotonic clock of the caller's. A Table is not
// safe for concurrent use.
package membership
