// Package consistent tests slicelets and their leases together, over real lease
// stores: one that a Slicer process serves over gRPC, and etcd. The test is the
// assigner; the processes are in this one, with a lease each.
package consistent
