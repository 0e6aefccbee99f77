package figures

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/deploy/plot"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/bed"
)

var svg = flag.String("svg", "", "`directory` to draw the figures into")

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roleMain(role))
	}
	goleak.VerifyTestMain(m)
}

// draw writes a figure if that was asked for.
func draw(tb testing.TB, name string, f plot.Figure) {
	tb.Helper()
	if *svg == "" {
		return
	}
	// A test runs in its package's folder; paths are meant from the top.
	path := filepath.Join("..", "..", "..", *svg, name)
	if filepath.IsAbs(*svg) {
		path = filepath.Join(*svg, name)
	}
	if err := f.WriteFile(path); err != nil {
		tb.Fatal(err)
	}
	tb.Logf("wrote %s", filepath.Join(*svg, name))
}

// latencies are how long after each generation was decided each subscriber held
// it or a newer one.
type latencies struct {
	mu   sync.Mutex
	seen map[assignment.Generation][]time.Duration
}

func (l *latencies) add(g assignment.Generation, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[g] = append(l.seen[g], now.Sub(g.Time()))
}

// follow notes when each new generation arrives at a clerk.
func follow(ctx context.Context, c *clerk.Clerk, l *latencies) {
	for {
		changed := c.Changed()
		if a := c.Assignment(); a != nil {
			l.add(a.Generation(), time.Now())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// distribution has an operator drain tasks and take that back, changes times, and
// returns how long each generation took to each of the clerks that got it.
func distribution(tb testing.TB, clerks, tasks, changes int) []time.Duration {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	p := bed.Start(tb, bed.Config{Distributors: 2})
	if err := p.PutJob(ctx, assignment.JobConfig{Name: "job"}.WithDefaults()); err != nil {
		tb.Fatal(err)
	}
	for i := range tasks {
		s, err := slicelet.New(slicelet.Config{Job: "job", Task: fmt.Sprintf("t%02d", i), Address: fmt.Sprintf("127.0.0.1:%d", i+1), Distributors: p.Addrs()})
		if err != nil {
			tb.Fatal(err)
		}
		bed.CloseAtEnd(tb, s.Close)
		if err := s.Ready(ctx); err != nil {
			tb.Fatal(err)
		}
	}
	l := &latencies{seen: map[assignment.Generation][]time.Duration{}}
	var all []*clerk.Clerk
	var wg sync.WaitGroup
	run, stop := context.WithCancel(ctx)
	defer wg.Wait()
	defer stop()
	for range clerks {
		c, err := clerk.New(clerk.Config{Job: "job", Distributors: p.Addrs()})
		if err != nil {
			tb.Fatal(err)
		}
		bed.CloseAtEnd(tb, c.Close)
		if err := c.Ready(ctx); err != nil {
			tb.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		wg.Go(func() { follow(run, c, l) })
	}
	conn, err := grpc.NewClient(p.Addrs()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, conn.Close)
	admin := slicerv1.NewAdminServiceClient(conn)
	began := all[0].Assignment().Generation()
	for i := range changes {
		req := &slicerv1.DrainTaskRequest{Job: "job", Task: fmt.Sprintf("t%02d", i/2%tasks), Undo: i%2 == 1}
		if _, err := admin.DrainTask(ctx, req); err != nil {
			tb.Fatal(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []time.Duration
	for g, d := range l.seen {
		if g > began { // what was there before came with the connection
			out = append(out, d...)
		}
	}
	slices.Sort(out)
	if len(out) < changes*clerks/2 {
		tb.Fatalf("only %d arrivals at %d clerks", len(out), clerks)
	}
	return out
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func BenchmarkDistribution(b *testing.B) {
	const clerks, tasks, changes = 500, 20, 200
	for b.Loop() {
		all := distribution(b, clerks, tasks, changes)
		ms := func(q float64) float64 { return float64(quantile(all, q).Microseconds()) / 1000 }
		b.Logf("%d arrivals of generations at %d clerks on 2 Distributors: 50 %% within %.1f ms of the decision, 90 %% %.1f, 99 %% %.1f, the last %.1f (Slicer paper, Figure 10: generally within the second)",
			len(all), clerks, ms(.5), ms(.9), ms(.99), ms(1))
		b.ReportMetric(ms(.5), "ms/p50")
		b.ReportMetric(ms(.99), "ms/p99")
		b.ReportMetric(ms(1), "ms/last")
		var x, y []float64
		for i := range 1001 {
			q := float64(i) / 1000
			x, y = append(x, max(ms(q), .1)), append(y, q)
		}
		draw(b, "figure10-distribution.svg", plot.Figure{
			Title: "Distribution latency",
			Notes: []string{fmt.Sprintf("from the decision until %d clerks on 2 Distributors hold it, %d generations; compare Slicer paper, Figure 10", clerks, changes)},
			Panels: []plot.Panel{{XLabel: "ms", YLabel: "share of arrivals", LogX: true, YMax: 1,
				Series: []plot.Series{{Name: "arrivals", X: x, Y: y, Strong: true}}}},
		})
	}
}

func TestDistribution(t *testing.T) {
	all := distribution(t, 20, 5, 6)
	t.Logf("%d arrivals, median %s, last %s", len(all), quantile(all, .5), quantile(all, 1))
}
