// Package clientindex gives the clients of one job the indexes by which they pick
// their subsets of its tasks (package loadbalance/subset): small, dense, distinct,
// and kept for as long as the client lives. It is pure: what Distributors say and
// the time come in as values, and what each is to be told comes out.
//
// A client gets the smallest index that is free, in the order in which clients are heard
// of, and keeps it until a minute after it has gone, so that one that only goes to
// another Distributor does not notice. The index given is therefore below the number of
// clients that live or have left within the minute. Holes that clients leave behind are
// filled by those that come; no client is moved to close them.
//
// Nothing is stored. An assigner that takes over learns the indexes from the clients,
// which hold them, by way of their Distributors, and so does one to which no Distributor was
// attached: for a while it gives out none, until it has heard of all clients or has waited
// long enough. Where two clients hold one index, the one that has been connected for longer
// keeps it; of two that are equal in this, the one with the lower id. A client that has gone
// yields to one that lives, and one that has not been told of it to one that has.
//
// All times are durations on one monotonic clock of the caller's. A [Table] is not
// safe for concurrent use.
package clientindex
