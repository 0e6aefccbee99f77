package live

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/slicer-project/slicer/assignment"
)

const (
	numKeys  = 100
	exponent = 1.5
	// stride is by how many places a shift turns the ranking of the keys: no key is
	// among the hottest again before all others have been.
	stride = 37
)

// popularity is a power law over keys. Safe for concurrent use.
type popularity struct {
	names  []string
	cdf    []float64 // by rank
	shifts atomic.Int64
}

// newPopularity ranks the keys at random.
func newPopularity(rng *rand.Rand) *popularity {
	p := &popularity{}
	sum := 0.
	for i, k := range rng.Perm(numKeys) {
		sum += math.Pow(float64(i+1), -exponent)
		p.cdf = append(p.cdf, sum)
		p.names = append(p.names, fmt.Sprintf("key-%02d", k))
	}
	for i := range p.cdf {
		p.cdf[i] /= sum
	}
	return p
}

// shift makes other keys the hot ones.
func (p *popularity) shift() { p.shifts.Add(1) }

func (p *popularity) name(rank int) string {
	return p.names[(rank+stride*int(p.shifts.Load()))%numKeys]
}

// key draws one.
func (p *popularity) key(rng *rand.Rand) string {
	rank, _ := slices.BinarySearch(p.cdf, rng.Float64())
	return p.name(min(rank, numKeys-1))
}

// imbalance is the largest of the loads that tasks get by an assignment over their mean.
func (p *popularity) imbalance(a *assignment.Assignment) float64 {
	load, below := make([]float64, a.NumTasks()), 0.
	for rank, upTo := range p.cdf {
		r := a.Lookup(assignment.KeyOf(p.name(rank)))
		for i := range r.Len() {
			load[r.Position(i)] += (upTo - below) / float64(r.Len())
		}
		below = upTo
	}
	return slices.Max(load) * float64(len(load))
}
