package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// fault is one kind of trouble. begin brings it about and returns what ends it.
type fault struct {
	name   string
	weight int
	begin  func(b *bed, rng *rand.Rand) (what string, lasts time.Duration, end func())
}

// between draws a time.
func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Int64N(int64(hi-lo)))
}

// free picks a process of those that nothing is the matter with.
func free(b *bed, rng *rand.Rand, ps []*process.Process) *process.Process {
	for range 20 {
		if p := ps[rng.IntN(len(ps))]; !b.troubled[p] {
			return p
		}
	}
	return nil
}

func kill(which func(*bed) []*process.Process, hi time.Duration) func(*bed, *rand.Rand) (string, time.Duration, func()) {
	return func(b *bed, rng *rand.Rand) (string, time.Duration, func()) {
		p := free(b, rng, which(b))
		if p == nil {
			return "", 0, nil
		}
		b.troubled[p] = true
		p.Kill()
		return p.Name, between(rng, 100*time.Millisecond, hi), func() { p.Restart(); delete(b.troubled, p) }
	}
}

func stop(which func(*bed) []*process.Process, lo, hi time.Duration) func(*bed, *rand.Rand) (string, time.Duration, func()) {
	return func(b *bed, rng *rand.Rand) (string, time.Duration, func()) {
		p := free(b, rng, which(b))
		if p == nil {
			return "", 0, nil
		}
		b.troubled[p] = true
		p.Stop()
		return p.Name, between(rng, lo, hi), func() { p.Continue(); delete(b.troubled, p) }
	}
}

func cut(lo, hi time.Duration, sides ...side) func(*bed, *rand.Rand) (string, time.Duration, func()) {
	return cutOff(owners, lo, hi, sides...)
}

func cutOff(which func(*bed) []*process.Process, lo, hi time.Duration, sides ...side) func(*bed, *rand.Rand) (string, time.Duration, func()) {
	return func(b *bed, rng *rand.Rand) (string, time.Duration, func()) {
		p := free(b, rng, which(b))
		if p == nil {
			return "", 0, nil
		}
		b.troubled[p] = true
		for _, s := range sides {
			b.net.cut(p.Name, s, true)
		}
		return p.Name, between(rng, lo, hi), func() {
			for _, s := range sides {
				b.net.cut(p.Name, s, false)
			}
			delete(b.troubled, p)
		}
	}
}

func owners(b *bed) []*process.Process { return b.owners }

// Of those that stand in for one another, one at a time is in trouble.
func assigners(b *bed) []*process.Process    { return b.oneOf(b.assigners) }
func distributors(b *bed) []*process.Process { return b.oneOf(b.distributors) }
func etcds(b *bed) []*process.Process        { return b.oneOf(b.etcds) }

func (b *bed) oneOf(ps []*process.Process) []*process.Process {
	for _, p := range ps {
		if b.troubled[p] {
			return []*process.Process{p}
		}
	}
	return ps
}

var faults = []fault{
	{"kill of slicelets", 3, kill(owners, 3*time.Second)},
	{"stop of slicelets for longer than the lease", 4, stop(owners, leaseTime+500*time.Millisecond, 3*leaseTime)},
	{"stop of slicelets for a moment", 2, stop(owners, 100*time.Millisecond, leaseTime)},
	{"cut between slicelets and etcd", 4, cut(leaseTime/2, 3*leaseTime, toEtcd)},
	{"cut between slicelets and distributors", 2, cut(leaseTime/2, 3*leaseTime, toPlane)},
	{"cut between slicelets and all others", 3, cut(leaseTime, 4*leaseTime, toEtcd, toPlane)},
	{"kill of an assigner", 2, kill(assigners, 4*time.Second)},
	{"stop of an assigner for longer than the lease", 2, stop(assigners, leaseTime, 4*leaseTime)},
	{"kill of an etcd member", 3, kill(etcds, 3*time.Second)},
	{"stop of an etcd member", 2, stop(etcds, 500*time.Millisecond, 2*leaseTime)},
	{"kill of a distributor", 1, kill(distributors, 2*time.Second)},
}

// storm brings trouble for a time, a new fault after each pause on average, and
// then ends it all. It returns how many there were of each.
func (b *bed) storm(lasts, pause time.Duration, kinds []fault) map[string]int {
	rng := rand.New(rand.NewPCG(b.plan.seed, 1))
	total := 0
	for _, f := range kinds {
		total += f.weight
	}
	type running struct {
		ends time.Time
		end  func()
	}
	var under []running
	counts := map[string]int{}
	begin := time.Now()
	next := begin
	for now := begin; now.Before(begin.Add(lasts)) || len(under) > 0; now = time.Now() {
		under = slices.DeleteFunc(under, func(r running) bool {
			if now.Before(r.ends) {
				return false
			}
			r.end()
			return true
		})
		if now.Before(begin.Add(lasts)) && now.After(next) && len(under) < 3 {
			n := rng.IntN(total)
			i := 0
			for n >= kinds[i].weight {
				n -= kinds[i].weight
				i++
			}
			if what, d, end := kinds[i].begin(b, rng); end != nil {
				b.t.Logf("%5.1f s: %s, %s, for %.1f s", now.Sub(begin).Seconds(), kinds[i].name, what, d.Seconds())
				counts[kinds[i].name]++
				under = append(under, running{now.Add(d), end})
			}
			next = now.Add(between(rng, 0, 2*pause))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return counts
}

func sum(counts map[string]int) (n int, text string) {
	var parts []string
	for name, c := range counts {
		n += c
		parts = append(parts, fmt.Sprintf("%d %s", c, name))
	}
	slices.Sort(parts)
	return n, strings.Join(parts, ", ")
}
