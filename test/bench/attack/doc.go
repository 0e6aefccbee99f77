// Package attack runs what one client can do to the others against a real process:
//
//	go test ./test/bench/attack -run '^$' -bench . -benchtime 1x
//
// "slicer serve" keeps a job with a hundred tasks. Each attack comes from 127.0.0.2 for ten
// seconds, while a clerk from 127.0.0.1 connects anew, joins and is sent the assignment,
// again and again, before, during and after it. A row says how long the slowest join
// took in each phase, how much memory the process had at most, how far generations are
// ahead of the clock, and how many keys changed owners. It fails where a join took a
// second or longer, or the memory came to more than twice what it was.
//
// Everything stays on the loopback, and is bounded in number and time.
package attack
