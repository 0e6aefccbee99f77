package demo

import (
	"errors"
	"fmt"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/cmd/internal/change"
)

// observer follows the assignments. It neither routes nor serves, so nothing
// waits for it. Safe for concurrent use.
type observer struct {
	sub *subscriber.Subscriber

	mu          sync.Mutex
	newest      *assignment.Assignment
	changed     chan struct{} // closed at the next assignment
	generations int           // since mark
	churn       float64       // since mark, summed
}

func newObserver(job string, plane addresses) (*observer, error) {
	o := &observer{changed: make(chan struct{})}
	var err error
	o.sub, err = subscriber.New(subscriber.Config{
		Job: job, Role: subscriber.Observer, ClientID: "demo-view",
		Distributors: []string{plane.distributor}, Backups: []string{plane.backup},
		Observe: o.see,
	})
	if err != nil {
		return nil, fmt.Errorf("observe the job: %w", err)
	}
	return o, nil
}

func (o *observer) see(s subscriber.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Assignment == nil || !s.Assignment.Newer(o.newest) {
		return
	}
	if o.newest != nil {
		o.generations++
		o.churn += change.Between(o.newest, s.Assignment).Churn
	}
	o.newest = s.Assignment
	close(o.changed)
	o.changed = make(chan struct{})
}

// now returns the newest assignment, nil if there is none, and what is closed at the next.
func (o *observer) now() (*assignment.Assignment, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest, o.changed
}

// progress is how many generations there were since mark, and their churn.
func (o *observer) progress() (generations int, churn float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.generations, o.churn
}

// mark begins to count anew.
func (o *observer) mark() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generations, o.churn = 0, 0
}

func (o *observer) Close() { o.sub.Close() }

// running names the tasks that may own slices, in order of index.
func running(a *assignment.Assignment) []string {
	var names []string
	if a == nil {
		return nil
	}
	for _, t := range a.Tasks() {
		if t.State == assignment.TaskRunning {
			names = append(names, t.Name)
		}
	}
	return names
}

// owned is how many slices a task owns, and their share of the keyspace.
func owned(a *assignment.Assignment, task string) (slices int, share float64) {
	if a == nil {
		return 0, 0
	}
	pos, ok := a.Position(task)
	if !ok {
		return 0, 0
	}
	for s, r := range a.All() {
		if r.Has(pos) {
			slices++
			share += s.Fraction()
		}
	}
	return slices, share
}

// trouble is why there is no newer assignment, as far as is known.
func (o *observer) trouble() error {
	if err := o.sub.State().Err; err != nil {
		return err
	}
	return errors.New("the control plane is well, the servers are not")
}
