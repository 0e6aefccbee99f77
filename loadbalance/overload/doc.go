// Package overload decides what a client and a server do when there is too much to do
// (Site Reliability Engineering, O'Reilly 2016, chapters 21 and 22). It has the
// budgets for retries, what requests say about themselves, admission (Pacer), and what a
// client holds back that a task would refuse (TaskLevel).
//
//	b := overload.NewRetryBudget(overload.OtherTasks)
//	b.Request(now) // once for each request
//	...
//	if b.Retry(now) {
//		// send it to another task
//	}
//
// A client that gives each request that one task does not answer to three others turns
// the overload of one task into that of all: with a budget it adds a tenth.
//
// A request says how bad it is if it fails, in the context of the client:
//
//	ctx = overload.WithCriticality(ctx, overload.SheddablePlus)
//
// The adapters of clients send this along, those of servers put it into the context of the
// handler, and so does whatever that asks of other servers. See Labels.
//
// The package is pure: no clock, no goroutine, no I/O. Time comes in as a value.
package overload
