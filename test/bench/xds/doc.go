// Package xds measures what 200 stock gRPC clients of one job cost a Distributor that serves
// them by xDS, while one slice moves each second:
//
//	go test ./test/bench/xds -run '^$' -bench Clients -benchtime 10x
//
// The clients are in a process of their own: 200 connections with a stream each, on which is
// asked for what gRPC's clients ask for, and everything is accepted at once. They read no
// routes: what that costs gRPC's clients is in test/system/xds. One iteration is one change.
// late is how often, for each change, a client did not hold it a second after it.
package xds
