// Package overload decides what a client and a server do when there is too much to do
// (Site Reliability Engineering, O'Reilly 2016, chapters 21 and 22). So far it has the
// budgets for retries.
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
// The package is pure: no clock, no goroutine, no I/O. Time comes in as a value.
package overload
