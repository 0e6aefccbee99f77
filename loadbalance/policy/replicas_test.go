package policy

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// replicas is a simulation of tasks that serve one request after the other, and of clients that
// choose among them by what they know.
type replicas struct {
	takes   []time.Duration // of a request, on average
	load    float64         // what is asked for, of what all can do
	clients int
	// slow is by how much longer the first takes for a tenth of the time.
	slow float64

	now    time.Duration
	rng    *rand.Rand
	events requests
	queues [][]request
	busy   []time.Duration
}

// request is one at a task, or if it is of none, one that comes.
type request struct {
	at, born     time.Duration
	client, task int
}

type requests []request

func (r requests) Len() int           { return len(r) }
func (r requests) Less(i, j int) bool { return r[i].at < r[j].at }
func (r requests) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *requests) Push(x any)        { *r = append(*r, x.(request)) }
func (r *requests) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// reportsEvery is how often a task says to a client how many are under way, with an answer.
const reportsEvery = 100 * time.Millisecond

// run returns the latency of the slowest hundredth, and how busy the busiest task was, of the
// least busy.
func (r *replicas) run(k Kind, count int) (p99 time.Duration, spread float64) {
	n, can := len(r.takes), 0.
	for _, t := range r.takes {
		can += 1 / t.Seconds()
	}
	every := time.Duration(float64(time.Second) / (r.load * can))
	lasts := time.Duration(count) * every
	r.rng, r.queues, r.busy = rand.New(rand.NewPCG(1, 2)), make([][]request, n), make([]time.Duration, n)
	known, heard := make([]List, r.clients), make([][]time.Duration, r.clients)
	for c := range known {
		known[c], heard[c] = make(List, n), make([]time.Duration, n)
		for i, t := range r.takes {
			known[c][i] = Candidate{Weight: 1 / t.Seconds(), InSubset: true}
		}
	}
	r.events = requests{{task: -1}}
	var took []time.Duration
	for r.now = 0; r.now < lasts; {
		e := heap.Pop(&r.events).(request)
		r.now = e.at
		if e.task < 0 {
			e.client = r.rng.IntN(r.clients)
			e.task, e.born = Choose(k, known[e.client], r.rng.Uint64()), r.now
			known[e.client][e.task].Outstanding++
			if r.queues[e.task] = append(r.queues[e.task], e); len(r.queues[e.task]) == 1 {
				r.serve(e.task, lasts)
			}
			heap.Push(&r.events, request{at: r.now + r.exponential(every), task: -1})
			continue
		}
		r.queues[e.task] = r.queues[e.task][1:]
		of := &known[e.client][e.task]
		if of.Outstanding--; r.now >= heard[e.client][e.task]+reportsEvery {
			of.InFlight, heard[e.client][e.task] = float64(len(r.queues[e.task])), r.now
		}
		took = append(took, r.now-e.born)
		if len(r.queues[e.task]) > 0 {
			r.serve(e.task, lasts)
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100], slices.Max(r.busy).Seconds() / slices.Min(r.busy).Seconds()
}

func (r *replicas) serve(task int, lasts time.Duration) {
	takes := r.exponential(r.takes[task])
	if task == 0 && r.slow > 0 && r.now > lasts/2 && r.now < lasts*6/10 {
		takes = time.Duration(r.slow * float64(takes))
	}
	r.busy[task] += takes
	e := r.queues[task][0]
	e.at = r.now + takes
	heap.Push(&r.events, e)
}

func (r *replicas) exponential(mean time.Duration) time.Duration {
	return time.Duration(r.rng.ExpFloat64() * float64(mean))
}

// TestReplicas: where one of three replicas is half as fast, the default choice leaves requests
// waiting for less long than chance in proportion to weights, keeps the slow one nearly as busy as
// the others, and takes to one that is suddenly slow no more than it answers, also where each
// client asks rarely.
func TestReplicas(t *testing.T) {
	const ms = time.Millisecond
	three := []time.Duration{10 * ms, 10 * ms, 20 * ms}
	ten := []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms, 12 * ms, 14 * ms, 16 * ms, 18 * ms, 20 * ms}
	for _, x := range []struct {
		replicas
		p99, spread float64 // at most
	}{
		{replicas{takes: three, load: .8, clients: 10}, .58, 1.2},
		{replicas{takes: three, load: .6, clients: 10}, .7, 1.3},
		{replicas{takes: ten, load: .8, clients: 100}, .65, 1.3},
		{replicas{takes: ten, load: .8, clients: 1000}, .9, 1.25},
		{replicas{takes: ten, load: .7, clients: 1000, slow: 20}, .05, 1.6},
	} {
		weighted, _ := x.run(Weighted, 100_000)
		p99, spread := x.run(WeightedLeastLoaded, 100_000)
		t.Logf("%d replicas, %d clients, at %v: p99 %v, by weights alone %v; the busiest is %.2f times as busy as the least", len(x.takes), x.clients, x.load, p99, weighted, spread)
		if p99.Seconds() > x.p99*weighted.Seconds() || spread > x.spread {
			t.Errorf("want at most %v of the latency, and %v", x.p99, x.spread)
		}
	}
}
