package policy

import (
	"math"
	"math/bits"

	"github.com/slicer-project/slicer/assignment"
)

// Kind says how one of equally preferred tasks is chosen.
type Kind uint8

// The kinds. The zero value is WeightedLeastLoaded.
const (
	WeightedLeastLoaded Kind = iota
	RoundRobin
	LeastLoaded
	Weighted
	numKinds
)

// Kinds is what there is, in words.
const Kinds = "weighted_least_loaded, round_robin, least_loaded or weighted"

var kindNames = [numKinds]string{WeightedLeastLoaded: "weighted_least_loaded", RoundRobin: "round_robin", LeastLoaded: "least_loaded", Weighted: "weighted"}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k < numKinds }

func (k Kind) String() string {
	if !k.Valid() {
		return "unknown"
	}
	return kindNames[k]
}

// ParseKind reads what String prints. The error is an *assignment.FieldError.
func ParseKind(s string) (Kind, error) {
	for k, name := range kindNames {
		if s == name {
			return Kind(k), nil
		}
	}
	return 0, &assignment.FieldError{Field: "policy", Value: s, Allowed: Kinds}
}

// Condition is what is known of the connection to a task, best first.
type Condition uint8

// The conditions. The zero value is Ready.
const (
	Ready      Condition = iota // a request can be sent now
	Connecting                  // soon
	Idle                        // not connected, and not tried
	Failing                     // the last attempt failed, or the task says that it does not serve
)

// Candidate is a task that a request may go to.
type Candidate struct {
	// Weight is the task's share of the requests relative to others, for Weighted and
	// WeightedLeastLoaded. What is not above 0 and finite is not known, and stands for the
	// mean of those that are.
	Weight float64
	// InFlight is how many requests of all clients are under way at the task, as it has
	// said lately; 0 if it has not. For WeightedLeastLoaded.
	InFlight float64
	// Outstanding is how many requests the client has sent that are not answered.
	Outstanding int64
	// Failed is what share of the client's requests to the task have failed lately (Failures).
	// A task counts for less by it, for all kinds but RoundRobin.
	Failed    float64
	Condition Condition
	// Draining tasks give their slices up: they still answer.
	Draining bool
	// InSubset says that the client keeps a warm connection to the task.
	InSubset bool
	// Full tasks have said that they refuse such requests.
	Full bool
	// Tried tasks were asked before and did not answer.
	Tried bool
}

// Ranks is how many different ranks there are.
const Ranks = 2 * (2*int(Failing) + 3)

// Rank is the place of the candidate in the order of preference, 0 (ready, in the
// subset) to Ranks-1. Ready, connecting and idle tasks come in this order, then
// those of them that drain, then those of all these that are full, then failing ones, then
// those that were tried; within each, members of the subset come first.
func (c Candidate) Rank() int {
	const conditions = int(Failing)
	rank := min(int(c.Condition), conditions)
	switch {
	case c.Tried:
		rank = 2*conditions + 2
	case rank == conditions:
		rank = 2*conditions + 1
	case c.Full:
		rank = 2 * conditions
	case c.Draining:
		rank += conditions
	}
	rank *= 2
	if !c.InSubset {
		rank++
	}
	return rank
}

// Candidates are tasks to choose among.
type Candidates interface {
	Len() int
	At(i int) Candidate
}

// List is the simplest Candidates.
type List []Candidate

// Len is Candidates'.
func (l List) Len() int { return len(l) }

// At is Candidates'.
func (l List) At(i int) Candidate { return l[i] }

// draws is how often LeastLoaded draws before it looks at all candidates.
const draws = 4

// Choose returns the position of the candidate that gets the request, or -1 if
// there is none. The number is a counter that each choice advances by one for
// RoundRobin, else uniformly random. It does not allocate.
//
// Where all candidates are of rank 0, which is usual, RoundRobin and LeastLoaded
// take a time that does not depend on how many there are.
func Choose[C Candidates](k Kind, c C, number uint64) int {
	n := c.Len()
	if n <= 1 {
		return n - 1
	}
	switch k {
	case LeastLoaded:
		// Drawing again until both are of rank 0 makes all pairs of these equally
		// likely, as drawing from a list of them would.
		for range draws {
			i, j := pair(number, n)
			if a, b := c.At(i), c.At(j); a.Rank() == 0 && b.Rank() == 0 {
				return lighter(i, j, a, b, number)
			}
			number = mix(number + 1)
		}
	case RoundRobin:
		if i := int(number % uint64(n)); c.At(i).Rank() == 0 {
			return i
		}
		// The turns of those that are passed over are spread over the others: the next
		// one would get them all.
		number = mix(number)
	}
	return chooseBest(k, c, n, number)
}

// chooseBest is Choose for candidates of any rank.
func chooseBest[C Candidates](k Kind, c C, n int, number uint64) int {
	best, count, sum, least, known, fails := Ranks, 0, 0., 0., 0, false
	for i := range n {
		t := c.At(i)
		rank := t.Rank()
		if rank > best {
			continue
		}
		if rank < best {
			best, count, sum, least, known, fails = rank, 0, 0, 0, 0, false
		}
		count++
		fails = fails || t.Failed > 0
		if t.weighted() {
			if sum += t.Weight; known == 0 || t.Weight < least {
				least = t.Weight
			}
			known++
		}
	}
	mean := sum / float64(known)
	if known == 0 || math.IsInf(mean*float64(count), 0) {
		mean = 0 // all are alike
	}
	all, usual := mean*float64(count), scale{mean, mostFailing * least}
	switch {
	case fails:
		all = total(c, n, best, usual)
	case mean == 0:
		all = float64(count)
	}
	switch {
	case k == LeastLoaded && count > 1:
		i, j := pair(number, count)
		i, j = nth(c, n, best, i), nth(c, n, best, j)
		return lighter(i, j, c.At(i), c.At(j), number)
	case k == WeightedLeastLoaded && count > 1:
		i := draw(c, n, best, usual, all, number, -1)
		j := draw(c, n, best, usual, all, mix(number), i)
		return emptier(i, j, c.At(i), c.At(j), usual, number)
	case k == Weighted:
		return draw(c, n, best, usual, all, number, -1)
	}
	return nth(c, n, best, below(number, count))
}

// nth finds the i-th candidate of a rank.
func nth[C Candidates](c C, n, rank, i int) int {
	for at := range n {
		if c.At(at).Rank() != rank {
			continue
		}
		if i == 0 {
			return at
		}
		i--
	}
	return n - 1
}

// total is the sum of what the candidates of a rank count for.
func total[C Candidates](c C, n, rank int, usual scale) (sum float64) {
	for i := range n {
		if t := c.At(i); t.Rank() == rank {
			sum += t.weight(usual)
		}
	}
	return sum
}

// draw draws one of the candidates of a rank, but not the one at skip, in proportion to what
// they count for, all together.
func draw[C Candidates](c C, n, rank int, usual scale, all float64, number uint64, skip int) int {
	if skip >= 0 {
		all -= c.At(skip).weight(usual)
	}
	left := float64(number>>11) / (1 << 53) * all
	last := n - 1
	for i := range n {
		t := c.At(i)
		if i == skip || t.Rank() != rank {
			continue
		}
		last = i
		if left -= t.weight(usual); left < 0 {
			break
		}
	}
	return last
}

// scale is what the weights that are known are on average, 0 if all count alike, and the most
// that one of a task that fails counts for: it says its weight itself.
type scale struct{ mean, failing float64 }

// weight is what a candidate counts for.
func (c Candidate) weight(usual scale) float64 {
	w := usual.mean
	switch {
	case w == 0:
		w = 1
	case c.weighted():
		w = c.Weight
	}
	if c.Failed > 0 && usual.mean > 0 {
		w = min(w, usual.failing)
	}
	return w * c.well()
}

// well is by how much failures leave a task to count for. With 1 - Failed one of two of which
// all requests fail gets a tenth of them, as it has nothing to do.
func (c Candidate) well() float64 {
	if c.Failed > 0 {
		return max((1-c.Failed)*(1-c.Failed), leastChosen)
	}
	return 1
}

// emptier is the one at which a request would find less to do before it, for what it can do.
// It prefers the first when both have as much: it was drawn at random.
func emptier(i, j int, a, b Candidate, usual scale, number uint64) int {
	if a.tries(number) {
		return i
	}
	atA, atB := a.underWay(), b.underWay()
	switch {
	case atA == 0 && atB == 0 && a.Failed == 0:
		// Weights alone would give all to the better one, however little that is better:
		// the draw was in proportion to them.
	case (atB+oneMore)*a.weight(usual) < (atA+oneMore)*b.weight(usual):
		return j
	}
	return i
}

const (
	// reported is what a request under way counts for of which the task has told, beside one of
	// the client's own: all clients were told about the same, some time ago, and would go
	// together where they were told of the fewest.
	reported = .1
	// oneMore is what the request that is to be sent counts for. If it counted for more than what is
	// under way a slow task that has nothing to do would be left idle beside fast ones that
	// have a request each.
	oneMore = .4 * reported
)

func (c Candidate) underWay() float64 {
	return reported*max(c.InFlight, 0) + float64(max(c.Outstanding, 0))
}

func (c Candidate) weighted() bool { return c.Weight > 0 && !math.IsInf(c.Weight, 0) }

// pair draws two different numbers below n, which is at least 2.
func pair(random uint64, n int) (i, j int) {
	i = below(random, n)
	j = below(mix(random), n-1)
	if j >= i {
		j++
	}
	return i, j
}

// below scales a random number to 0..n-1.
func below(random uint64, n int) int {
	hi, _ := bits.Mul64(random, uint64(n))
	return int(hi)
}

// lighter prefers the first when both have as much: it was drawn at random.
func lighter(i, j int, a, b Candidate, number uint64) int {
	switch {
	case a.Failed > 0 || b.Failed > 0:
		return emptier(i, j, Candidate{Outstanding: a.Outstanding, Failed: a.Failed}, Candidate{Outstanding: b.Outstanding, Failed: b.Failed}, scale{}, number)
	case b.Outstanding < a.Outstanding:
		return j
	}
	return i
}

// tries reports whether a task that fails gets a request whatever speaks against it, to find
// out whether it still does.
func (c Candidate) tries(number uint64) bool {
	return c.Failed > 0 && float64(mix(^number)>>11)/(1<<53) < leastChosen
}

// mix is the finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014): a bijection that
// makes numbers in a row look random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
