// Package loadbalance decides which task owns which slice. It is pure: time,
// seeds and measurements come in as values, the same input gives the same
// output, and nothing is ordered by a map. Rebalance is one round; Measure makes
// its loads from what tasks report.
//
// # Phases
//
// A round goes through the phases of section 4.4.1 of the Slicer paper:
//
//  1. slices of tasks that may not own any more go elsewhere (reassign.go), and
//     a task that owns nothing is given its share (seed.go);
//  2. every slice gets at least the smallest and at most the largest number of
//     replicas (reassign.go);
//  3. adjacent cold slices are merged (merge.go);
//  4. load is moved off the hottest tasks, at the least churn (published.go, and
//     rebalancer.go for weighted-move);
//  5. hot slices are split (split.go).
//
// New tasks count for less than their capacity until they are warm, in all of these
// (warm.go).
//
// Phases 3 to 5 depend on load, and are left out when only membership changed,
// when no load is known, and when a job balanced by CPU is nowhere near busy.
//
// # Published and weighted-move
//
// With Input.Published, to compare with, a round does what the paper says. Where the
// paper is silent both do the same: a task that owns nothing is given its share at
// once, in rounds without the load phases too (seed.go); and an owner that is
// gone is not made up for where enough replicas are left that carry no more than
// they should. Weighted-move, which all jobs are balanced by, differs in this:
//
//   - It decides on estimates of load, not on single measurements (estimate.go).
//     What all of the load has changed by is taken off first. Each slice's
//     smoothing adapts to whether its errors keep their sign, a jump is believed
//     at once as far as jumps have been found to last, if it is no chance, where
//     many small slices take more evidence than few large ones. Where much more of
//     the load is elsewhere than usual all levels count for less, and where
//     measurements foretell little the width of a slice counts instead.
//   - It moves nothing while the imbalance is within a band, and then splits, merges
//     and drops nothing either unless there is much of it (rest.go). The band is wider,
//     and the budget for moving keyspace smaller, the less of the load can be
//     foretold. Only tasks that long known keys keep hot may give away a little
//     more of what lies beside these (bursts.go).
//   - The benefit of a move is the fall of squared overload, so that it is not
//     stuck when two tasks are equally hot. A replica more counts for more and one
//     fewer for less, as keys on several tasks change what each carries by less.
//   - When no single move helps, the compound one that gains most for what it
//     moves makes room for a hot slice (eject.go). When nothing helps, it goes on
//     with the next task.
//   - Heavy keys are cut out into slices of their own (isolate.go), which are
//     next to no part of the keyspace and so can be moved and replicated at no
//     churn of other keys. So are lighter ones that carry most of their slice,
//     once something has to move. Slices that carry next to nothing stay.
//   - Replicas that are no longer needed go (extra.go), save when load comes in
//     bursts that cannot be foretold: then more are added (bursts.go).
//   - Neighbours on the same tasks are merged first, and others only when the
//     number of slices comes near its limit.
//
// Package sim measures what that is worth.
package loadbalance
