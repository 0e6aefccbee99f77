package overload

import (
	"flag"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var (
	cell  = flag.Duration("cell", 6*time.Second, "how long each load is offered")
	turns = flag.Int("turns", 2, "how often each server is measured")
)

// servers are what BenchmarkAdmission compares.
var servers = []onecore.Kind{onecore.Nothing(), onecore.Limit(16), onecore.Slicer("slicer"), levels()}

// levels is a server with admission whose clients link the library.
func levels() onecore.Kind {
	k := onecore.Slicer("levels")
	k.Dial = func(p onecore.Place) (*grpc.ClientConn, error) {
		opts := clerkgrpc.DialOptions(clerkgrpc.Config{Clerk: clerk.Config{Distributors: p.Distributors}, Keyless: clerkgrpc.AnyTask})
		return grpc.NewClient("slicer:///"+p.Job, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
	}
	return k
}

// BenchmarkAdmission offers a server of one core more than it can do, in turns with a server
// without admission and one with a fixed limit; "levels" is one with admission whose clients
// link the library. test/bench/peers has what others offer. Answers in time for each
// CPU-second are divided by those of the same server at .5x in the same turn; beside it is
// the CPU that it used, of what the one without admission used.
//
//	go test ./test/bench/overload -run '^$' -bench Admission -benchtime 1x -cell 60s -turns 5
func BenchmarkAdmission(b *testing.B) {
	onecore.Run(b, onecore.Config{
		Kinds: servers,
		Takes: []time.Duration{2 * time.Millisecond, 5 * time.Millisecond},
		Loads: []float64{.5, .8, 1, 1.5, 3, 10},
		Cell:  *cell,
		Turns: *turns,
	})
}

// BenchmarkFlood offers a server of one core .5 of what it can do that is critical and .1 that is
// critical_plus, while all else of the load is sheddable: 99.5 % of the former are to be served.
//
//	go test ./test/bench/overload -run '^$' -bench Flood -benchtime 1x -cell 30s -turns 3
func BenchmarkFlood(b *testing.B) {
	onecore.Run(b, onecore.Config{
		Kinds: []onecore.Kind{onecore.Nothing(), onecore.Slicer("slicer"), levels()},
		Takes: []time.Duration{2 * time.Millisecond, 5 * time.Millisecond},
		Loads: []float64{.6, 10},
		Mix:   func(load float64) [4]float64 { return [4]float64{1 - .6/load, 0, .5 / load, .1 / load} },
		Cell:  *cell,
		Turns: *turns,
	})
}
