package demo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/loadbalance/overload"
)

// arrival is a call that a client is to make.
type arrival struct {
	at          time.Duration // since the load began
	key         string
	load        float64
	criticality overload.Criticality // 0 if it says none
}

// source yields arrivals in order of time; ok is false after the last.
type source interface {
	next() (a arrival, ok bool, err error)
}

// The synthetic load: keys of Zipf popularity. The hottest has a quarter of all
// calls: from 8 servers on an equal split of the keys is more than twice off the
// mean, wherever the keys lie, and one key has to be spread over several servers.
const (
	zipfKeys     = 1000
	zipfExponent = 1.25
	// In consistent mode a key is on one server: the hottest has a tenth.
	zipfConsistent = .9
)

// zipf is a Poisson stream of calls. Not safe for concurrent use, but for shift.
type zipf struct {
	rng   *rand.Rand
	gap   float64 // mean, seconds
	now   float64
	cdf   []float64
	keys  []string
	epoch atomic.Uint32
	times atomic.Int32 // as many calls
	mixed bool         // calls are of all criticalities
}

func newZipf(qps int, seed uint64, exponent float64) *zipf {
	z := &zipf{
		rng: rand.New(rand.NewPCG(seed, 0x5115)), gap: 1 / float64(qps),
		cdf: make([]float64, zipfKeys), keys: make([]string, zipfKeys),
	}
	z.times.Store(1)
	sum := 0.
	for i := range z.cdf {
		sum += math.Pow(float64(i+1), -exponent)
		z.cdf[i] = sum
	}
	for i := range z.cdf {
		z.cdf[i] /= sum
	}
	for i, k := range z.rng.Perm(zipfKeys) {
		z.keys[i] = fmt.Sprintf("user/%04d", k)
	}
	return z
}

// hottest is the hottest key's share of the calls.
func (z *zipf) hottest() float64 { return z.cdf[0] }

// shift makes other keys the hot ones, from the next call on.
func (z *zipf) shift() { z.epoch.Add(1) }

func (z *zipf) next() (arrival, bool, error) {
	z.now += z.rng.ExpFloat64() * z.gap / float64(z.times.Load())
	rank, _ := slices.BinarySearch(z.cdf, z.rng.Float64())
	// Each shift turns the ranking by a prime that is far from its length's divisors.
	k := (min(rank, zipfKeys-1) + int(z.epoch.Load())*389) % zipfKeys
	a := arrival{at: time.Duration(z.now * float64(time.Second)), key: z.keys[k], load: 1}
	if z.mixed {
		a.criticality = drawCriticality(z.rng.Float64())
	}
	return a, true, nil
}
