// Package greeter shows what it takes to shard a gRPC service, and tests that it
// works while everything moves.
//
// plain/server and plain/client are an ordinary service. server and client are the same
// programs sharded, by at most ten lines more each: a test counts them, and runs the
// programs.
//
// The storm sends RPCs while keys move all the time and servers, which are
// processes, are drained, killed and started again:
//
//	go test ./test/examples/greeter -run Storm -storm.rpcs 50000 -v
//
// RPCs that were in flight at a server when it was killed may fail. No others may.
// It counts apart the RPCs that went to a task that does not own their key since
// the owner was dead, and those that went there since client and server held
// different assignments for a moment; together they are the misrouted ones.
//
// BenchmarkOverhead compares RPCs routed by key with gRPC's own round_robin over
// the same servers, in turns within one run:
//
//	go test ./test/examples/greeter -run '^$' -bench Overhead -benchtime 1x
package greeter
