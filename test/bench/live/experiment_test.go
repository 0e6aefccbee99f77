package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/bed"
)

const (
	job        = "live"
	numServers = 10
	numClients = 5
	usualRate  = 1500. // requests a second, all clients together

	sampleEvery = 250 * time.Millisecond
	window      = 3 * time.Second
	limit       = 1.2
	stay        = 5 * time.Second
	// settled is when the reaction to a shift is over and all is steady.
	settled = 30 * time.Second

	setUpLimit = time.Minute
	// phase is by how much the times between shifts differ, at random, so that they
	// do not keep step with the assigner's rounds.
	phase = 5 * time.Second
)

// experiment is a running system under load.
type experiment struct {
	servers []*server
	clients []*client
	load    *popularity
	rng     *rand.Rand
	watch   *observer
	plane   *bed.Plane
	metrics *prometheus.Registry // of the assigner
}

// startExperiment returns when every server owns slices and the clients call. All of
// it ends with the test.
func startExperiment(tb testing.TB, seed uint64, servers int, perSecond float64) *experiment {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), setUpLimit)
	defer cancel()
	b := &experiment{rng: rand.New(rand.NewPCG(seed, 0)), metrics: prometheus.NewRegistry()}
	b.load = newPopularity(b.rng)
	b.plane = bed.Start(tb, bed.Config{Registerer: b.metrics})
	addr := b.plane.Addrs()[0]
	if err := b.plane.PutJob(ctx, assignment.JobConfig{Name: job}.WithDefaults()); err != nil {
		tb.Fatal(err)
	}
	for i := range servers {
		b.servers = append(b.servers, startServer(tb, fmt.Sprintf("server-%d", i), addr))
	}
	b.watch = startObserver(tb, addr)
	for i := range numClients {
		b.clients = append(b.clients, startClient(tb, addr, b.load, rand.New(rand.NewPCG(seed, uint64(i+1))), perSecond/numClients))
	}
	for b.watch.owners() < servers {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			tb.Fatalf("%d of %d servers own slices after %s", b.watch.owners(), servers, setUpLimit)
		}
	}
	return b
}

func (b *experiment) sample() sample {
	s := sample{at: time.Now()}
	for _, srv := range b.servers {
		s.seen = append(s.seen, srv.requests.Load())
	}
	return s
}

// record samples for a time, or until it has seen enough; a nil enough never has.
func (b *experiment) record(d time.Duration, enough func([]sample) bool) []sample {
	samples := []sample{b.sample()}
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for end := samples[0].at.Add(d); samples[len(samples)-1].at.Before(end); {
		<-ticker.C
		samples = append(samples, b.sample())
		if enough != nil && enough(samples) {
			break
		}
	}
	return samples
}

func (b *experiment) failed() (n int64) {
	for _, c := range b.clients {
		n += c.failed.Load()
	}
	return n
}

// result is what became of one shift.
type result struct {
	took     time.Duration // zero if it did not recover
	decided  time.Duration // until the assignment was one that the load is even by
	worst    float64       // imbalance
	reacting float64       // churn until it has settled, a share of the keyspace
	steady   float64       // churn from then on
	calm     time.Duration // from then to the next shift
	since    float64       // churn from the recovery on
	span     time.Duration // from the recovery to the next shift
	above    float64       // share of the windows after the reaction that are at or above the limit
	rate     float64       // requests a second that arrived
	trace    string        // the imbalance each second, with the changes of assignment
}

// shift makes other keys hot and sees what becomes of it until the next shift,
// or until there is enough to see.
func (b *experiment) shift(between time.Duration, enough func([]sample) bool) result {
	b.load.shift()
	samples := b.record(between+time.Duration(b.rng.Int64N(int64(phase))), enough)
	first, last := samples[0], samples[len(samples)-1]
	all := readings(samples)
	r := result{trace: b.trace(first.at, all)}
	for i := range first.seen {
		r.rate += float64(last.seen[i]-first.seen[i]) / last.at.Sub(first.at).Seconds()
	}
	for _, x := range all {
		r.worst = max(r.worst, x.imbalance)
	}
	from := first.at.Add(settled)
	r.reacting, r.steady = total(b.watch.between(first.at, from)), total(b.watch.between(from, last.at))
	r.calm = max(last.at.Sub(from), 0)
	if at, ok := reaction(b.foretold(samples)); ok {
		r.decided = at.Sub(first.at)
	}
	if at, ok := reaction(all); ok {
		r.took = at.Sub(first.at)
		r.since, r.span = total(b.watch.between(at, last.at)), last.at.Sub(at)
		r.above = share(slices.DeleteFunc(all, func(x reading) bool { return x.at.Before(at) }))
	}
	return r
}

// foretold are the imbalances by the assignments that were in force and how popular keys are
// now: what windows would show if they were short and there were endless requests.
func (b *experiment) foretold(samples []sample) (all []reading) {
	for _, s := range samples {
		if a := b.watch.held(s.at); a != nil {
			all = append(all, reading{s.at, b.load.imbalance(a)})
		}
	}
	return all
}

// trace shows the first seconds: the imbalance once a second, and when the
// assignment changed by how much of the keyspace.
func (b *experiment) trace(began time.Time, all []reading) string {
	var out strings.Builder
	next := began
	for _, r := range all {
		if r.at.Before(next) || r.at.Sub(began) > 40*time.Second {
			continue
		}
		next = r.at.Add(time.Second)
		fmt.Fprintf(&out, " %.2f", r.imbalance)
	}
	out.WriteString(";")
	for _, c := range b.watch.between(began, began.Add(time.Hour)) {
		fmt.Fprintf(&out, " %.1fs:%.2f%%", c.at.Sub(began).Seconds(), 100*c.churn)
	}
	fmt.Fprintf(&out, "; replicas of the hottest:")
	for rank := range 4 {
		fmt.Fprintf(&out, " %d", b.watch.replicas(b.load.name(rank)))
	}
	return out.String()
}

// early is how many rounds the assigner has held before their time.
func (b *experiment) early(tb testing.TB) (n int) {
	tb.Helper()
	families, err := b.metrics.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	known := false
	for _, f := range families {
		known = known || f.GetName() == "slicer_assigner_generations_total"
		if f.GetName() != "slicer_assigner_rounds_early_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += int(m.GetCounter().GetValue())
		}
	}
	if !known {
		tb.Fatal("the assigner has no metrics")
	}
	return n
}

// quiet lets the load be for a time, and returns how many generations and early rounds
// there were in it.
func (b *experiment) quiet(tb testing.TB, d time.Duration) (generations, early int) {
	tb.Helper()
	early = b.early(tb)
	failed, from := b.failed(), time.Now()
	samples := b.record(d, nil)
	changes := b.watch.between(from, time.Now())
	early = b.early(tb) - early
	sum := 0.0
	all := readings(samples)
	for _, r := range all {
		sum += r.imbalance / float64(len(all))
	}
	tb.Logf("%s: %d generations, %d early rounds; %.3f %% of the keyspace moved; imbalance of windows of %s %.3f on average; %d calls failed",
		d, len(changes), early, 100*total(changes), window, sum, b.failed()-failed)
	for _, c := range changes {
		tb.Logf("  after %.1f s: %.3f %% of the keyspace", c.at.Sub(from).Seconds(), 100*c.churn)
	}
	return len(changes), early
}

// recovered says that no more need be seen to know the reaction.
func recovered(samples []sample) bool {
	_, ok := reaction(readings(samples))
	return ok
}

// summary is what became of all shifts.
type summary struct {
	took        []time.Duration // in order of time, unrecovered shifts as an hour
	decided     []time.Duration // likewise
	unrecovered int
	reacting    float64 // churn a shift, a share of the keyspace
	steady      float64 // churn a minute when settled
	since       float64 // churn a minute from recoveries to the next shifts
}

// shifts carries out n shifts.
func (b *experiment) shifts(tb testing.TB, n int, between time.Duration, enough func([]sample) bool) summary {
	tb.Helper()
	var s summary
	var calm, span time.Duration
	failed := b.failed()
	for i := range n {
		r := b.shift(between, enough)
		s.reacting += r.reacting / float64(n)
		s.steady += r.steady
		calm += r.calm
		s.since += r.since
		span += r.span
		took := fmt.Sprintf("%.1f s", r.took.Seconds())
		if r.took == 0 {
			took, r.took = "NOT RECOVERED", time.Hour
			s.unrecovered++
		}
		if r.decided == 0 {
			r.decided = time.Hour
		}
		s.took, s.decided = append(s.took, r.took), append(s.decided, r.decided)
		tb.Logf("shift %2d: %s, decided after %.2f s; worst %.2f, churn %.2f %% in %s and %.2f %% in the %.0f s after, %.1f %% of the windows from the reaction on not below %g, %.0f req/s",
			i+1, took, r.decided.Seconds(), r.worst, 100*r.reacting, settled, 100*r.steady, r.calm.Seconds(), 100*r.above, limit, r.rate)
		tb.Logf("  %s", r.trace)
	}
	if calm > 0 {
		s.steady /= calm.Minutes()
	}
	if span > 0 {
		s.since /= span.Minutes()
	}
	if n := b.failed() - failed; n > 0 {
		tb.Logf("%d calls failed", n)
	}
	return s
}
