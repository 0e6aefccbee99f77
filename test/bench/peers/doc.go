// Package peers measures Slicer's lookup beside what a program would use in its
// place. It is a module of its own, so that the peers stay out of Slicer's go.mod.
//
//	cd test/bench/peers && go test -run=NONE -bench=. -count=5
//
// Each benchmark takes a 16-byte key to the task that owns it, hashing included,
// at 10, 10^4 and 10^6 slices on at most 1000 tasks. No key comes twice, so that
// memory is as cold as it is for real traffic.
//
//   - Lookup/slicer: assignment.KeyOfBytes and Assignment.Lookup, through an
//     index on the top bits of the key.
//   - Lookup/sortSearch: the same hash, then sort.Search over the same starts.
//   - Lookup/buraksezer: LocateKey of github.com/buraksezer/consistent with the
//     same hash, its partitions as many as the slices. It places keys by their
//     hash modulo the partitions: no range of keys can be moved, split or given
//     to several tasks by load, which is what slices are for.
//
// BenchmarkPick measures the picker of clerk/clerkgrpc beside grpc-go's ring_hash,
// which is what a gRPC program would use otherwise, with all connections ready:
//
//	cd test/bench/peers && go test -run '^$' -bench Pick -benchtime 1x
//
// Both take an RPC's context to a connection. Ours finds the key where
// clerk.WithKey has put it, theirs in the outgoing metadata, as it must; ours hashes
// it and looks it up in 10,000 slices, theirs in a ring of 4096 entries, the most
// that it takes.
package peers
