// Package sim replays traces, generated workloads and scenes through sharding
// algorithms, as fast as it can: the production code of package loadbalance and
// those of package baseline that users would choose otherwise. It is how the
// algorithms are judged, and how an operator finds out how many tasks a traffic
// needs before it arrives.
//
// Everything is a function of its inputs and a seed.
package sim
