// Package lease is consistent mode: at most one task ever believes that it owns
// a key, whatever dies, pauses or is cut off, and only the keys that move are ever
// without an owner while an assignment changes (Slicer paper, section 4.5).
//
// A job has three leases. The job lease says which assigner may change the others. The guard
// names the generation in force: a slicelet may use that assignment, and only that, while it
// holds the guard for reading. The bridge names two generations: under it, the keys whose
// owner is the same in both stay usable while the guard is recalled and rewritten. A recalled
// record is not granted any more; its holders release it, or their lease runs out.
//
// # The change, by an assigner
//
// Next is the protocol's table: of the records as read it makes the one
// transaction that is called for, and nothing is remembered from one to the next. So
// another assigner takes over at any point. Step.Outcome is what that transaction
// writes; a store carries it out only if the job lease's token and all records are
// those that were read, and if there is no reader where none may be.
//
//	Write    head = a stored assignment A2
//	Boot     guard = {head, open}                       no guard readers
//	Span     bridge = {guard's generation, head, open}  no bridge readers
//	Recall   guard = {same, recalled}                   after readers are on the bridge, or a while
//	Rewrite  guard = {bridge's to, open}                no guard readers
//	Retire   bridge = {same, recalled}                  after readers are on the guard, or a while
//	Close    bridge deleted                             no bridge readers
//
// An assigner that serves consistent jobs opens one WriteSession for its process
// and renews it every third of its TTL. For each job that it is preferred for it
// takes the job lease (Lead), and then, again and again:
//
//  1. decides on the next assignment and writes it to the assignment store, as in
//     affinity mode; it is distributed in the usual way;
//  2. calls Advance with that generation as Wanted.
//
// On ErrDeposed or ErrLost it lets the job go. An assigner that takes a job over calls Advance
// before it decides anything, with the newest stored generation as Wanted:
// that completes what is under way and takes up what was stored last. The head here is set only
// after the assignment is stored whole, and is compared with the token; the
// assignment store's own head may be ahead of it, written by an assigner that was deposed
// meanwhile. That binds no task: it comes in force, if at all, by a Write. The
// store's collector must spare the generations that State names: head, guard, and both
// sides of the bridge. A job's records stay when the job is deleted: should it be made
// anew, its first generation follows the old ones as any other would.
//
// # The other end, in a slicelet
//
// One Reader per process holds one session in the store, from the first Join on,
// and renews it; each job is a Join, and named to the store. Job.Belief is what the task may use now, and nil when that is
// nothing. It is bound to the session under which it was acquired and reads the clock at every use, so a process that
// was stopped for longer than its lease believes in nothing from its first
// instruction on: the deadline is the time when the last answered keepalive was *sent*, plus the
// lease time, less a margin, on CLOCK_BOOTTIME, which runs through suspend. A session
// whose deadline has passed once is over, even if the store still keeps it.
//
// A slicelet in consistent mode asks Job.Owns(key) where in affinity mode it asks its
// assignment, takes JobConfig.Changed as the source of what its listener hears
// (Belief.Slices), and gives JobConfig.Fetch a function that returns what its subscriber has
// in hand, or gets the generation from a Distributor or a Backup Distributor by number. A belief that
// is Valid before an operation may end during it: what must not be written by a former
// owner carries the handle's fencing token to a store that compares it.
//
// A handle is good as long as its key was one's own in every belief that Changed
// has told since, and the newest is Valid; its fencing token is the key's Since in
// the guard's assignment in which that began. Under the bridge a key keeps its token.
//
// Package slicelet does all that, given a Reader. Core is the slicelet's side as a
// pure state machine; Job is the goroutine that drives it.
//
// # The clock
//
// Belief reads CLOCK_BOOTTIME at each use, and only a system call or the C library can.
// time.Now reads the wall clock and the monotonic clock without a system call. Linux
// changes the differences between the three clocks on two occasions only: it adds the
// time of a suspend to the wall clock and to CLOCK_BOOTTIME at once, and a step (an operator,
// NTP, a hypervisor's agent, a leap second) is added to the wall clock alone; slewing
// changes the rate of all three alike. So Boottime keeps an anchor: the differences, as they were when it last
// made the system call. While wall minus monotonic clock is what it was, to
// 10 microseconds, the monotonic clock plus the anchor's difference is CLOCK_BOOTTIME;
// otherwise it makes the call, which costs time and is never wrong. If a thread is stopped
// between the two clocks for just as long as the machine was suspended before, the sum is right for the
// moment when the first was read.
//
// One thing would deceive that rule: a wall clock that is set back, to 10 microseconds, by
// what a suspend took, while no goroutine reads the clock. NTP does not do that unless the
// clock was ahead by precisely the time that is then slept; but it is not impossible. So an anchor
// is used for a millisecond of the monotonic clock and no longer. In that
// millisecond the kernel would have to freeze all processes, stop and start all devices,
// let the processes go on, and one of these would have to set the clock back. Neither rule
// would do alone: the age trusts that a suspend takes a while, the difference that no
// clock is set so.
//
// Reading both clocks takes twice as long as reading one. So for 10 microseconds after an
// anchor was made, or was found to hold by both clocks, the monotonic clock is read alone.
// That is no time for a suspend: the monotonic clock stands still only after the last
// device has stopped, and goes on before the first one starts, the other cores are taken up again and
// the processes are let go. Where it goes on in steps of more than a microsecond, as
// without a high-resolution timer, both are read each time. An anchor is not found to hold
// where more than 10 microseconds passed while the clocks were read, as for a thread that
// was stopped between the two. The error, 20 microseconds, is a part of the margin, which is at least 10 milliseconds.
// Should time.Now come to count suspends too, the sum stays right.
//
// # A store that goes back
//
// A store may be put back to an earlier state while readers and assigners live: etcd
// from a snapshot or by --force-new-cluster, the served store with an older folder.
// It then grants what others may believe in otherwise. So a session ends with
// ErrWentBack when the store is found to have gone back, and is lost from that moment:
//
//   - a revision is lower than one that the store has told before, in whatever answer,
//     and a linearizable read confirms it; or
//   - after a new connection, before a keepalive counts: guard and bridge were not at
//     the revision at which they were seen what they were seen to be, by value,
//     mod revision and a random number, or a holder key is not the one that the
//     session has made. This finds a store that is written to past its old revision.
//     What is compacted away, so that it cannot be told, ends the session too.
//
// A session that was restored is never renewed, and one whose deadline has passed
// is over whatever the store says. A Reader that has lost a session before its time
// opens none for a lease time: until then others may believe in what they
// have acquired since, and do not know it yet. What remembers nothing, because it was
// started afterwards or had lost its session before, is kept out by Suspender.Suspend, which closes guard
// and bridge of every job to every session. Whatever restores a store calls it before
// clients reach the store, with the longest lease_duration, or waits for so long while
// no store is there. An assigner whose store has gone back calls it too.
//
// This holds if readers of a job have one lease time, at most that for which the
// store is suspended. It does not hold for a process whose CLOCK_BOOTTIME
// stands still, as in a virtual machine that its hypervisor pauses or that is restored
// from a checkpoint: there no lease can help, but a store that compares
// the handle's fencing token and sequence does.
//
// # Stores
//
// Readers and Writers are the contract, leasetest its conformance suite. Package
// etcdlease keeps leases in etcd; package serve in the process that `slicer serve`
// is; package front serves those in etcd to slicelets without its credentials; and package
// remote is how slicelets reach the latter two. This package links none of them.
//
// The protocol has a Promela model, test/model, that is explored exhaustively,
// and the code here is run against itself by a random simulation (TestSimulation).
package lease
