package overload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet/sliceletgrpc"
	"github.com/slicer-project/slicer/test/examples/greeter/hello"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

// BenchmarkHostile has one client flood a server of one core beside honest ones, which ask for
// .8 of what it can do, in turns with the same flood without its lies: the first cohort always,
// each request standing for 10^4, sent before twice, charged to another customer, with a
// deadline of four days. It reports what share of the honest requests is answered within half a
// second, all and critical ones and above, and what that is of the share without the lies. With
// an identity the flood's customer may be sheddable at most, and it claims critical_plus where
// it lies; without one it is critical_plus either way, which nothing forbids.
//
//	go test ./test/bench/overload -run '^$' -bench Hostile -benchtime 1x -phase 15s -rounds 5 -timeout 30m
func BenchmarkHostile(b *testing.B) {
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	const takes = 2 * time.Millisecond
	limits, err := assignment.LimitsOf(assignment.Limit{}, map[string]assignment.Limit{"127.0.0.2": {Rate: 1e6, MaxCriticality: overload.Sheddable}})
	if err != nil {
		b.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		limits assignment.Limits
		floods []float64 // of what the server can do
	}{{"identity", limits, []float64{.1, 3}}, {"none", assignment.Limits{}, []float64{.1, .5}}} {
		cfg := assignment.JobConfig{Name: x.name, Overload: assignment.OverloadConfig{Admission: assignment.AdmissionOn}, Limits: x.limits}
		if err := plane.PutJob(b.Context(), cfg.WithDefaults()); err != nil {
			b.Fatal(err)
		}
		for _, flood := range x.floods {
			b.Run(fmt.Sprintf("by=%s/flood=%v", x.name, flood), func(b *testing.B) {
				server := spec{Job: x.name, Task: "task", Distributor: plane.Addrs()[0], Burns: takes, ByAddress: x.name == "identity"}.start(b)
				var honest []hello.GreeterClient
				for range 8 {
					conn := jobConn(b, x.name, plane.Addrs())
					defer conn.Close()
					honest = append(honest, hello.NewGreeterClient(conn))
				}
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
				conn := server.plainConn(b, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }))
				defer conn.Close()
				flooding := hello.NewGreeterClient(conn)
				all := figures{}
				for round := range *rounds {
					shares := map[bool][2]float64{}
					for _, lies := range []bool{false, true} {
						var running sync.WaitGroup
						running.Go(func() {
							steady(uint64(round), flood/takes.Seconds(), *phase, func(rng *rand.Rand, at time.Time) func() {
								pairs := []string{sliceletgrpc.CriticalityHeader, "critical_plus", sliceletgrpc.CohortHeader, strconv.Itoa(rng.IntN(overload.Cohorts))}
								if x.name == "identity" {
									pairs[1] = "sheddable"
								}
								by := at.Add(500 * time.Millisecond)
								if lies {
									pairs = []string{sliceletgrpc.CriticalityHeader, "critical_plus", sliceletgrpc.CohortHeader, "0", sliceletgrpc.StandsForHeader, "10000",
										sliceletgrpc.AttemptHeader, "2", sliceletgrpc.CustomerHeader, "127.0.0.1"}
									by = at.Add(100 * time.Hour)
								}
								return func() {
									ctx, cancel := context.WithDeadline(metadata.AppendToOutgoingContext(context.Background(), pairs...), by)
									defer cancel()
									_, _ = flooding.SayHello(ctx, wrapperspb.String("x"))
								}
							})
						})
						shares[lies] = ofHonest(uint64(round), honest, .8/takes.Seconds())
						running.Wait()
					}
					for i, of := range []string{"all", "critical"} {
						all.add(of, shares[true][i])
						all.add(of+"-honest-flood", shares[false][i])
						all.add(of+"-ratio", shares[true][i]/shares[false][i])
					}
				}
				all.report(b)
			})
		}
	}
}

// ofHonest asks at a rate for a phase, and returns what share is answered within half a second,
// of all and of what is critical and above.
func ofHonest(seed uint64, stubs []hello.GreeterClient, rate float64) (share [2]float64) {
	l := load{stubs: stubs, mixed: true}
	all := l.offer(seed, rate, *phase)
	return [2]float64{all.sum(0).share(), all.sum(overload.Critical).share()}
}
