package live

import (
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// change is an assignment that came, and the share of the keyspace that with it
// came to tasks that did not own it.
type change struct {
	at    time.Time
	churn float64
	to    *assignment.Assignment
}

// observer watches the assignments. Safe for concurrent use.
type observer struct {
	sub *subscriber.Subscriber

	mu      sync.Mutex
	newest  *assignment.Assignment
	changes []change
}

func startObserver(tb testing.TB, distributorAddr string) *observer {
	tb.Helper()
	o := &observer{}
	var err error
	o.sub, err = subscriber.New(subscriber.Config{
		Job: job, Role: subscriber.Observer, ClientID: "observer", Distributors: []string{distributorAddr}, Observe: o.see,
	})
	if err != nil {
		tb.Fatal(err)
	}
	bed.CloseAtEnd(tb, o.sub.Close)
	return o
}

func (o *observer) see(s subscriber.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Assignment == nil || !s.Assignment.Newer(o.newest) {
		return
	}
	if o.newest != nil {
		o.changes = append(o.changes, change{time.Now(), churn(o.newest, s.Assignment), s.Assignment})
	}
	o.newest = s.Assignment
}

// owners is how many tasks own something.
func (o *observer) owners() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.newest == nil {
		return 0
	}
	own := map[int]bool{}
	for _, r := range o.newest.All() {
		for i := range r.Len() {
			own[r.Position(i)] = true
		}
	}
	return len(own)
}

// held is the assignment that the observer held at a time, nil if it is the first.
func (o *observer) held(at time.Time) (a *assignment.Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.changes {
		if c.at.After(at) {
			break
		}
		a = c.to
	}
	return a
}

// replicas is how many tasks own a key.
func (o *observer) replicas(key string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest.Lookup(assignment.KeyOf(key)).Len()
}

// between are the changes from one time to another.
func (o *observer) between(from, to time.Time) (in []change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.changes {
		if !c.at.Before(from) && c.at.Before(to) {
			in = append(in, c)
		}
	}
	return in
}

func total(cs []change) (sum float64) {
	for _, c := range cs {
		sum += c.churn
	}
	return sum
}

// churn is the share of the keyspace that came to tasks that did not own it,
// summed over replicas.
func churn(old, next *assignment.Assignment) (sum float64) {
	for i, j := 0, 0; i < old.NumSlices() && j < next.NumSlices(); {
		s, t := old.Slice(i), next.Slice(j)
		both, _ := s.Intersect(t)
		had := map[string]bool{}
		for k := range old.Replicas(i).All() {
			had[k.Name] = true
		}
		for k := range next.Replicas(j).All() {
			if !had[k.Name] {
				sum += both.Fraction()
			}
		}
		if s.End <= t.End {
			i++
		}
		if t.End <= s.End {
			j++
		}
	}
	return sum
}
