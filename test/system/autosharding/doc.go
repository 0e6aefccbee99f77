// Package autosharding tests what Slicer offers to gRPC clients that have none of
// its code: real assigners, Distributors and slicelets on one side, a client of
// the auto-sharding protocol that is written from its description alone on the
// other, and the service config that a stock client is given.
package autosharding
