package leasejobs_test

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/leasejobs"
	"github.com/slicer-project/slicer/lease/serve"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const owner = "spiffe://corp/job/task/t1"

// BenchmarkRenew renews a session over a stream in TLS, as a slicelet does, at a store on
// Pebble without rights and at one with a policy and a job of twenty patterns, in turns.
// x-cpu is the CPU time of a renewal with rights, in the time of one without, median of the
// turns: of both ends in one process; us-more is the difference.
func BenchmarkRenew(b *testing.B) {
	const turn = 500
	given := map[assignment.Verb][]string{}
	for i := range 19 {
		given[assignment.Own] = append(given[assignment.Own], fmt.Sprintf("spiffe://corp/job/server-%d/task/{task}", i))
	}
	given[assignment.Own] = append(given[assignment.Own], "spiffe://corp/job/task/{task}")
	access, err := assignment.AccessOf(given)
	if err != nil {
		b.Fatal(err)
	}
	authority := accesstest.New(b)
	renewals := [2]func(){
		renewer(b, authority, access, nil),
		renewer(b, authority, access, accesstest.Rights(b, "plane: [spiffe://corp/slicer/d1]\n", nil)),
	}
	run := func(i int) time.Duration {
		before := cputest.Own()
		for range turn {
			renewals[i]()
		}
		return cputest.Own() - before
	}
	run(0)
	run(1)
	var ratios []float64
	var sum [2]time.Duration
	for n := 0; b.Loop(); n++ {
		var took [2]time.Duration
		for _, i := range []int{n % 2, 1 - n%2} {
			took[i] = run(i)
			sum[i] += took[i]
		}
		ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
	}
	slices.Sort(ratios)
	us := func(i int) float64 { return sum[i].Seconds() * 1e6 / turn / float64(len(ratios)) }
	b.ReportMetric(us(0), "us/renewal-without")
	b.ReportMetric(us(1)-us(0), "us-more")
	b.ReportMetric(ratios[len(ratios)/2], "x-cpu")
	b.ReportMetric(1.1, "x-cpu-limit")
	b.ReportMetric(0, "ns/op")
}

// renewer opens a session and returns what renews it.
func renewer(b *testing.B, authority *accesstest.Authority, access assignment.Access, rights *enforce.Rights) func() {
	b.Helper()
	db, err := pebblestore.Open(b.TempDir(), pebblestore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	if _, err := db.PutJob(b.Context(), assignment.JobConfig{Name: "job", Mode: assignment.Consistent, Access: access}.WithDefaults(), 0); err != nil {
		b.Fatal(err)
	}
	leases, err := serve.Open(b.Context(), serve.Config{Storage: db.Leases(), Terms: leasejobs.Terms(db), Fresh: true, Rights: rights})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { leases.Close() })
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv, done := grpc.NewServer(grpc.Creds(authority.Server("spiffe://corp/slicer/d1"))), make(chan struct{})
	leases.Register(srv)
	go func() { defer close(done); _ = srv.Serve(lis) }()
	b.Cleanup(func() { srv.Stop(); <-done })
	cc, err := grpc.NewClient("passthrough:///"+lis.Addr().String(), grpc.WithTransportCredentials(authority.Client(owner)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	c := slicerv1.NewLeaseServiceClient(cc)
	o, err := c.OpenSession(b.Context(), &slicerv1.OpenSessionRequest{TtlMs: 10_000, Jobs: []string{"job"}, Tasks: map[string]string{"job": "t1"}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.RenewSessions(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	number := int64(0)
	return func() {
		number++
		err := s.Send(&slicerv1.RenewSessionsRequest{Number: number, Renewal: &slicerv1.RenewSessionRequest{Session: o.GetSession()}})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
