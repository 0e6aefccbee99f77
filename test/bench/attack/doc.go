// Package attack runs what one client can do to the others against a real process:
//
//	go test ./test/bench/attack -run '^$' -bench Attack -benchtime 1x
//
// "slicer serve" keeps a job with a hundred tasks. Each attack comes from 127.0.0.2 for ten
// seconds, while a clerk from 127.0.0.1 connects anew, joins and is sent the assignment,
// again and again, before, during and after it. A row says how long the slowest join
// took in each phase, how much memory the process had at most, how far generations are
// ahead of the clock, and how many keys changed owners. It fails where a join took a
// second or longer, or the memory came to more than twice what it was. In the rows whose
// names begin with "backup" the Backup Distributor is attacked and joined. In those whose
// names begin with "tls" all is TLS with a policy, each task has an identity of its own, and
// the attacker has one that may watch the honest job ("insider") or do nothing there and own
// another job ("outside"), of which it has 10,000 tasks: no more may live than its max_tasks,
// and no more be connected than the policy's bounds say. There it fails, too, where a key
// changes its owner.
//
// BenchmarkSoak runs all of them at once, for as long as it is told:
//
//	go test ./test/bench/attack -run '^$' -bench Soak -benchtime 1x -soak 30m -timeout 1h
//
// The victims are etcd, two assigners, two Distributors, a Backup Distributor, and "slicer
// serve" on Pebble, each a process. Behind them are 22 honest servers of three jobs, one
// of them in consistent mode, and clients that call those 80 times a second; each of these
// lives for half a minute, and another with a new name takes its place. Every 25 s each
// attack runs for 20 s, except the unknown names (1 s), against one victim after the
// other. Every second each process is asked for its goroutines, descriptors, memory and
// series, and the stores for their size. The benchmark prints these, and fails where the
// lower quartile of one of them is more in the last third than in the second by a tenth and what
// quantities in flat_test.go allow beside; where an honest join failed or took longer than
// 5 s; where more than one honest call in 1,000 failed; and where a process has ended.
//
// Everything stays on the loopback, and is bounded in number and time.
package attack
