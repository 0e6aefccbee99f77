package generate

import (
	"slices"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
)

// leased is a job in consistent mode whose leases the test has in hand.
type leased struct {
	*braked
	token lease.Token
	did   []string // the actions of the order, in turn
}

// until drives the core until it asks for what is named, at most for d, and returns
// that action unanswered. Changes are answered as soon as they are asked for, unless
// one is what is named; while that one is under way nothing answers it.
func (l *leased) until(name string, d time.Duration) Action {
	l.Helper()
	for end := l.at + d; l.at < end; {
		l.at += 100 * time.Millisecond
		if l.at%time.Second == 0 {
			l.beat(false)
		}
		for range 20 {
			action, _ := l.core.Next(l.now())
			kind := ""
			switch a := action.(type) {
			case Load:
				kind = "load"
				l.core.Loaded(l.now(), Loaded{Exists: true, Job: l.job, StoreID: 7, Assignment: l.stored, Overrides: l.overrides, Recalled: a.Penalties})
			case Lead:
				kind = "lead"
				l.token++
				l.core.Led(l.now(), l.token, nil)
			case Change:
				kind = "change"
				if kind != name {
					l.complete()
				}
			case *Plan:
				kind = "plan"
				l.core.Planned(l.now(), a.Run())
			case Write:
				kind = "write"
				if a.Token != l.token {
					l.Errorf("written with token %d, the job lease has %d", a.Token, l.token)
				}
				l.core.Written(l.now(), l.write(a))
			}
			if kind == "" {
				break
			}
			l.did = append(l.did, kind)
			l.core.Outputs()
			if kind == name {
				return action
			}
		}
	}
	return nil
}

// complete ends the change under way: what is stored is in force.
func (l *leased) complete() {
	g := generation(l.stored)
	l.core.Changed(l.now(), lease.State{Records: lease.Records{Head: g, Guard: lease.Guard{Generation: g, Open: g > 0}}}, 1, nil)
}

func newLeased(t *testing.T) *leased {
	l := &leased{braked: newBraked(t, 1)}
	l.job.Config.Mode = assignment.Consistent
	l.job.Config.MaxReplicas = 1
	l.stored, l.kept, l.entries = nil, nil, nil
	l.take()
	return l
}

// The order of package lease, step by step: the job lease, what is stored, what is
// under way, and only then a decision, which comes in force before the next.
func TestOrderOfAConsistentJob(t *testing.T) {
	l := newLeased(t)
	if l.until("write", time.Minute) == nil || l.until("change", time.Minute) == nil {
		t.Fatalf("no first generation comes in force: %q", l.did)
	}
	want := []string{"load", "lead", "load", "change", "plan", "write", "load", "change"} // the store tells of its own write, too
	if !slices.Equal(l.did, want) {
		t.Errorf("it did %q, want %q", l.did, want)
	}
	// While the change is under way, whatever happens to tasks and load is left for later.
	l.did = nil
	delete(l.tasks, "t4")
	l.start("t5")
	if a := l.until("plan", 30*time.Second); a != nil || slices.Contains(l.did, "write") {
		t.Errorf("in the middle of a change it did %q", l.did)
	}
	l.complete()
	if l.until("plan", 30*time.Second) == nil {
		t.Errorf("with the change done it did %q", l.did)
	}
	// Another assigner had the job lease for a moment, and has stored: that is read
	// first.
	l.core.Lost(l.now(), lease.ErrLost)
	l.did = nil
	if l.until("plan", 30*time.Second) == nil {
		t.Fatalf("after a lost lease it did %q", l.did)
	}
	if want := []string{"lead", "load", "change", "plan"}; !slices.Equal(l.did, want) {
		t.Errorf("after a lost lease it did %q, want %q", l.did, want)
	}
}

// Each of the reasons not to decide holds by itself.
func TestMayDecide(t *testing.T) {
	l := newLeased(t)
	if l.until("write", time.Minute) == nil || l.until("change", time.Minute) == nil {
		t.Fatalf("no first generation comes in force: %q", l.did)
	}
	l.complete()
	ready := l.core.jobLease
	if !l.core.jobLease.mayDecide(&l.core.store) {
		t.Fatalf("steady, and it may not decide: %+v", ready)
	}
	for why, change := range map[string]func(*jobLease){
		"without the job lease":                  func(t *jobLease) { t.token = 0 },
		"before what was under way is completed": func(t *jobLease) { t.settled = false },
		"while a change is under way":            func(t *jobLease) { t.changing = true },
		"before it is time to try again":         func(t *jobLease) { t.retryAt = l.at + time.Second },
		"before what is stored is in force":      func(t *jobLease) { t.inForce = generation(l.stored) - 1 },
	} {
		l.core.jobLease = ready
		change(&l.core.jobLease)
		if l.core.jobLease.mayDecide(&l.core.store) {
			t.Errorf("it may decide %s", why)
		}
	}
	l.core.jobLease = ready
}
