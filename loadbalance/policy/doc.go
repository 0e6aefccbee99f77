// Package policy chooses which of several tasks gets a request: one of the
// owners of its slice, or, for a request without a key, any task of a client's
// subset.
//
//	i := policy.Choose(policy.LeastLoaded, policy.List{
//		{Condition: policy.Ready, InSubset: true, Outstanding: 4},
//		{Condition: policy.Ready, InSubset: true, Outstanding: 1},
//	}, rand.Uint64())
//
// The choice is in two steps. First only the most preferred tasks stay, in the
// order of Candidate.Rank: those that a connection is ready to come before those
// that would have to be waited for, members of the subset before others, draining
// and failing tasks last. Among these the Kind decides:
//
//   - WeightedLeastLoaded, the default, draws two in proportion to their weights and takes
//     the one with fewer requests under way for its weight, of this client and, at a tenth,
//     of all as far as the tasks say it; the first, if nothing is under way at either. In a
//     simulation of tasks of unlike and changing speed it beats each of the others in the
//     latency of the slowest hundredth, and spreads load better: a task that slows down is
//     seen in its requests under way before its weight tells. (It joins the two policies
//     of Site Reliability Engineering, O'Reilly 2016, chapter 20: least loaded and weighted
//     round robin.)
//   - RoundRobin takes turns.
//   - LeastLoaded draws two and takes the one with fewer requests outstanding
//     (the power of two choices: M. Mitzenmacher, "The Power of Two Choices in
//     Randomized Load Balancing", IEEE Transactions on Parallel and Distributed
//     Systems 12(10), 2001).
//   - Weighted draws in proportion to Candidate.Weight, which Utilization derives
//     from what tasks report, as gRPC's weighted round robin does (gRFC A58).
//
// The package is pure: no clock, no goroutine, no I/O, no randomness but the
// number that comes in. Nothing allocates. Utilization is a plain value, which
// its user guards; all else is safe for concurrent use.
package policy
