// Package chaos finds out what clients see while parts of Slicer die, stop, and
// are cut off from one another, phase by phase.
//
// Its test runs three etcd members, three assigners, three Distributors, a Backup
// Distributor, 30 servers and 15 clients as real processes, each in a network
// namespace of its own:
//
//	go test -tags system ./test/system/chaos -run Chaos -v -timeout 60m -chaos.phase 20s -chaos.json chaos.json
//
// It needs root and iproute2. -chaos.phases takes a regular expression for the
// names of phases, and -chaos.seed the seed of what is drawn.
//
// Judged is routing availability: of the requests whose owner, by the newest stored
// assignment, was running and could be reached from the caller all the while (all owners,
// if the slice has several), the share that was answered. The judge reads assignments
// from the store itself, and knows which fault was done to which process when. A process
// that the machine had no time for, for more than 250 ms, counts as one that did not run.
// Requests to owners that are dead say nothing about routing; they are in the raw share.
//
// No task may be stored as dead that ran and that a Distributor could hear.
package chaos
