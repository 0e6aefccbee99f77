// Package e2e tests Slicer with real processes: a three-process etcd, two
// assigners, two distributors, a backup distributor, servers and clients, which
// are killed with SIGKILL while the clients keep calling.
//
// The test builds etcd and the binaries itself, from the module's own
// dependencies: nothing but Go need be installed.
package e2e
