// Package subsetting measures clients' subsets of servers on the real thing: 200
// servers with slicelets and 200 gRPC clients with clerks of subset size 20, an
// assigner and a Distributor on Pebble, all in one process, over loopback TCP. The
// clients get their indexes from the control plane. Each server counts the
// connections that it accepts and that end.
//
//	go test ./test/bench/subsetting -v
//
// What is asked is what the article promises ("Reinventing Backend Subsetting at
// Google", Communications of the ACM 66(5)) and what the pure algorithm does with
// the same numbers: each server has exactly the connections that it is to have,
// and when the servers become 220 and are 200 again, no more connections end at
// the servers that stay than the algorithm's churn. The same clients and servers
// with deterministic subsetting show the spike for which the article gives that
// up.
package subsetting
