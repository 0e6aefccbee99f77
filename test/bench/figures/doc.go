// Package figures repeats experiments of the Slicer paper, section 5, on one
// machine with the real parts, and draws what comes out:
//
//	go test ./test/bench/figures -run '^$' -bench . -benchtime 1x -timeout 60m -svg deploy/docs
//
// BenchmarkDistribution is Figure 10: how long after it was decided a generation
// is in the hands of each subscriber. BenchmarkAuthority is Figure 14: what it
// costs when a central authority is asked about each request instead. Figure 12,
// an assigner that is away while load shifts, is BenchmarkOutage of test/bench/live.
//
// Without -svg they only print. The plain tests are the same in small.
package figures
