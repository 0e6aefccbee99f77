// Package peers measures Slicer's lookup and admission beside what a program would use in
// their place. It is a module of its own, so that the peers stay out of Slicer's go.mod.
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
//
// BenchmarkAdmission measures admission, on a server of one core that is offered up to ten
// times what it can do, beside other libraries, with their defaults:
//
//	cd test/bench/peers && go test -run '^$' -bench Admission -benchtime 1x -timeout 12h -cell 60s -turns 10
//
// The servers are:
//
//   - nothing: no admission.
//   - limit: 16 RPCs at a time, counted in an interceptor.
//   - streams: grpc.MaxConcurrentStreams, which makes clients wait and refuses nobody.
//   - gradient2: Gradient2 of github.com/platinummonkey/go-concurrency-limits. It can
//     guarantee each criticality a part of its limit.
//   - bbr: ratelimit/bbr of github.com/go-kratos/aegis. It knows no criticality.
//   - failsafe: the adaptive limiter of github.com/failsafe-go/failsafe-go with a queue,
//     from whose length it works out which priorities it refuses.
//   - slicer: this project's, clients not knowing it.
//
// -kinds also takes limit-tap, gradient2-tap, bbr-tap and failsafe-tap (without queue and
// priorities), which count RPCs from gRPC's tap on, and not only when their goroutine has
// run, and failsafe-queue-tap, which is failsafe with what it lets in at once counted there.
package peers
