package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance/overload"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// crowd asks all tasks for more than they can do: one key for what half of them can, and crowdKeys
// others for what nine of ten can. While there is one tasks report what requests took of their CPU
// as load, with what those would have taken that were refused, as package slicelet does.
type crowd struct {
	w             *world
	began         time.Duration
	asked, served [2][crowdLasts]int // critical ones, by second: for the others, and for the one key
}

const (
	crowdKeys  = 1000
	crowdLasts = 60 // seconds
	// saturatedFrom is the second from which on it is to be served what it can be.
	saturatedFrom = 30
)

// beginCrowd has one begin.
func (t *traffic) beginCrowd(hot, others float64) *crowd {
	t.crowd = &crowd{w: t.w, began: t.w.at}
	for range crowdKeys {
		t.keys = append(t.keys, assignment.SliceKey(t.rng.Uint64()>>1))
	}
	for _, s := range t.w.slicelets {
		s.room.starts = cpuTakes
		s.room.measured = measured{since: t.w.at, before: s.room.computed, served: make([]float64, len(t.keys)), refused: make([]float64, len(t.keys))}
	}
	for _, c := range t.w.clerks {
		c.asking.stock = false
	}
	t.rerouted()
	(&crowding{t.crowd, 0, others}).next()
	(&crowding{t.crowd, 1, hot}).next()
	return t.crowd
}

// crowding is its next request for the one key, or for another.
type crowding struct {
	*crowd
	hot  int
	rate float64 // a second
}

func (x *crowding) next() { x.w.traffic.next(x.rate, 1<<59, x) }

func (x *crowding) happen() {
	x.next()
	t, key := x.w.traffic, 0
	if x.hot == 0 {
		key = trafficKeys + t.rng.IntN(crowdKeys)
	}
	l := drawLabels(t.rng, &usualMix)
	x.count(&x.asked, key, l.Criticality, x.w.at)
	x.w.clerks[t.rng.IntN(len(x.w.clerks))].ask(key, nil, l)
}

// count counts a request in the second in which it was made.
func (x *crowd) count(in *[2][crowdLasts]int, key int, of overload.Criticality, began time.Duration) {
	if i := int((began - x.began) / time.Second); of >= overload.Critical && i < crowdLasts {
		hot := 0
		if key == 0 {
			hot = 1
		}
		in[hot][i]++
	}
}

// share is what was served from one second to another, of the one key or the others.
func (x *crowd) share(hot, from, to int) float64 {
	asked, served := 0, 0
	for i := from; i < to; i++ {
		asked, served = asked+x.asked[hot][i], served+x.served[hot][i]
	}
	return float64(served) / float64(max(asked, 1))
}

// measured is what was asked of a task since it was last reported, by key.
type measured struct {
	since, before   time.Duration
	served, refused []float64 // requests; refused: critical ones, and what clerks held back
}

// refuses counts requests for which there is no room.
func (b *measured) refuses(a *ask, n int) {
	if b.refused != nil && a.key != noKey && a.of >= overload.Critical {
		b.refused[a.key] += float64(n)
	}
}

// demand is what a task reports (package slicelet's measurement).
func (r *room) demand() *slicerv1.LoadReport {
	b, a, now := &r.measured, r.s.state.Assignment, r.s.w.at
	pos, ok := r.s.place()
	if secs := (now - b.since).Seconds(); ok && secs > 0 {
		r.compute()
		l := assignment.Load{Generation: a.Generation(), Window: now - b.since, Parts: 1, Cores: (r.computed - b.before).Seconds() / secs}
		l.CPU = min(l.Cores, 1)
		l.Total = l.Cores
		all := 0.
		for _, n := range b.served {
			all += n
		}
		each, rates := l.Cores/max(all, 1), make([]float64, a.NumSlices())
		for key, k := range r.s.w.traffic.keys {
			i := a.Find(k)
			if !a.Replicas(i).Has(pos) {
				continue
			}
			more := b.refused[key] * each
			rate := b.served[key]*each + more
			l.Total, l.Unserved = l.Total+more, l.Unserved+more
			rates[i] += rate
			if key == 0 && rate > 0 {
				l.Hot = []assignment.HotKey{{Key: k, Rate: rate}}
			}
		}
		for i, rate := range rates {
			if a.Replicas(i).Has(pos) {
				l.Ranges, l.Rate = append(l.Ranges, a.Slice(i)), append(l.Rate, rate)
			}
		}
		r.s.load = wire.LoadToProto(&l)
	}
	b.since, b.before = now, r.computed
	clear(b.served)
	clear(b.refused)
	return r.s.load
}

// saturate has a crowd ask ten tasks, balanced by CPU time, for crowdLasts, and returns how much
// of its time each has computed from saturatedFrom on.
func saturate(seed uint64) (x *crowd, used []float64) {
	w := newWorld(seed, size{assigners: 1, distributors: 1, backups: 1, slicelets: 10, clerks: 8})
	w.store.job.Config = assignment.JobConfig{Name: job, LoadMetric: assignment.LoadCPU}.WithDefaults()
	w.run(beginning)
	all := capacity * float64(len(w.slicelets))
	x = w.traffic.beginCrowd(.5*all, .9*all)
	computed := func(s *sliceletHost) float64 {
		s.room.compute()
		return s.room.computed.Seconds()
	}
	w.run(w.at + saturatedFrom*time.Second)
	for _, s := range w.slicelets {
		used = append(used, -computed(s))
	}
	w.run(w.at + (crowdLasts-saturatedFrom)*time.Second)
	for i, s := range w.slicelets {
		used[i] = (used[i] + computed(s)) / (crowdLasts - saturatedFrom)
	}
	w.end()
	return x, used
}

// TestSaturated: where all tasks are asked for more than they can do none has room that others lack.
func TestSaturated(t *testing.T) {
	for seed := range uint64(5) {
		_, used := saturate(seed + 1)
		if slices.Min(used) < .8 {
			t.Errorf("seed %d: of their time tasks computed %.2f from the %dth second on", seed+1, used, saturatedFrom)
		}
	}
}

// BenchmarkSaturated says what share of the critical requests for the one key, and for the others, is
// served from the 30th second on, in the mean and at the least of 20 seeds.
//
//	go test ./test/cluster -run '^$' -bench Saturated -benchtime 1x
func BenchmarkSaturated(b *testing.B) {
	for range b.N {
		const seeds = 20
		var sum [2]float64
		least := 1.
		for seed := range uint64(seeds) {
			x, _ := saturate(seed + 1)
			for hot := range sum {
				sum[hot] += x.share(hot, saturatedFrom, crowdLasts) / seeds
			}
			least = min(least, x.share(1, saturatedFrom, crowdLasts))
		}
		b.ReportMetric(sum[1], "critical-served")
		b.ReportMetric(least, "least-critical-served")
		b.ReportMetric(sum[0], "others-critical-served")
		b.ReportMetric(.95, "bar")
		b.ReportMetric(0, "ns/op")
	}
}
