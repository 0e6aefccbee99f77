package fanout

import (
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/cputest"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// BenchmarkAssigner has 10,000 tasks report each second through 10 Distributors to
// one assigner, alone in its process, and says what CPU time that costs: cpu-s/s,
// system calls and garbage collection included and rounds of balancing apart, which
// are rounds-s/s by the clock, so that the machine is to be quiet; all-cpu-s/s has
// them in. The limit is 1. late-s is how far the assigner was behind: the age of the
// oldest last report, 1 to 2 when tasks and Distributors kept up too.
func BenchmarkAssigner(b *testing.B) {
	const distributors, tasks, watched = 10, 1000, 20 * time.Second
	address, admin, reg := startAssigner(b)
	startReporters(b, address, job, distributors, tasks)()
	for b.Loop() {
		cpu, rounds, began := cputest.Own(), roundSeconds(b, reg), time.Now()
		time.Sleep(watched)
		took := time.Since(began).Seconds()
		rounds = roundSeconds(b, reg) - rounds
		cpu = cputest.Own() - cpu
		b.ReportMetric(max(cpu.Seconds()-rounds, 0)/took, "cpu-s/s")
		b.ReportMetric(cpu.Seconds()/took, "all-cpu-s/s")
		b.ReportMetric(rounds/took, "rounds-s/s")
	}
	late, n := oldest(b, admin)
	b.ReportMetric(late.Seconds(), "late-s")
	b.ReportMetric(float64(n), "tasks")
	b.ReportMetric(1, "limit")
}

// TestAssigner is a small one: all of some hundred tasks are heard, again and again.
func TestAssigner(t *testing.T) {
	const distributors, tasks = 2, 150
	address, admin, _ := startAssigner(t)
	startReporters(t, address, job, distributors, tasks)()
	began := time.Now()
	for {
		since := time.Since(began)
		late, n := oldest(t, admin)
		if n != distributors*tasks {
			t.Fatalf("%d tasks are known, not %d", n, distributors*tasks)
		}
		if late < since {
			return // each has reported since
		}
		if since > waittest.Patience {
			t.Fatalf("a task was not heard for %s", late)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

const job = "web"

// startAssigner starts an assigner with a job that has nothing yet.
func startAssigner(b testing.TB) (address string, admin slicerv1.AdminServiceClient, reg *prometheus.Registry) {
	st, err := pebblestore.Open(b.TempDir(), pebblestore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	reg = prometheus.NewRegistry()
	a, err := assigner.New(assigner.Config{ID: "a1", Address: l.Addr().String(), Stores: []assigner.NamedStore{{Backend: st}}, Registerer: reg})
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(assigner.ServerOptions()...)
	a.Register(s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(l)
	}()
	b.Cleanup(func() { s.Stop(); <-served; a.Close() })
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	admin = slicerv1.NewAdminServiceClient(cc)
	config := &slicerv1.JobConfig{Name: job, MinReplicas: 1, MaxReplicas: 1}
	if _, err := admin.PutJob(b.Context(), &slicerv1.PutJobRequest{Config: config}); err != nil {
		b.Fatal(err)
	}
	return l.Addr().String(), admin, reg
}

// oldest is the age of the oldest last report of a task, and how many tasks there are.
func oldest(b testing.TB, admin slicerv1.AdminServiceClient) (late time.Duration, tasks int) {
	// The connection may have been given up meanwhile for being idle on a busy machine.
	resp, err := admin.InspectJob(b.Context(), &slicerv1.InspectJobRequest{Job: job}, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		resp, err = admin.InspectJob(b.Context(), &slicerv1.InspectJobRequest{Job: job}, grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true))
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range resp.Tasks {
		if t.LastReportAgeMs < 0 {
			b.Fatalf("%s has not reported", t.Task.Name)
		}
		late = max(late, time.Duration(t.LastReportAgeMs)*time.Millisecond)
	}
	return late, len(resp.Tasks)
}

// roundSeconds is how long rounds of balancing have taken altogether.
func roundSeconds(b *testing.B, reg *prometheus.Registry) (sum float64) {
	all, err := reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "slicer_assigner_round_seconds" {
			for _, m := range f.Metric {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}
