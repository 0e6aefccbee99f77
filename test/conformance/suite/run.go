package suite

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Config says what to run.
type Config struct {
	Role Role
	// Command starts the driver.
	Command []string
	// Patience is how long what has to happen may take.
	Patience time.Duration
	// Parallel is how many checks run at once.
	Parallel int
}

// Outcome is how a check has ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "pass"
	Faulty  Outcome = "fault"
	Skipped Outcome = "skip"  // the implementation does not have an operation
	Trouble Outcome = "error" // the kit, or starting the driver, has failed
)

// Result is what a check has found.
type Result struct {
	Check   string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	// Want is what was expected, Saw what there was instead, and Ref where it is written.
	Want    string  `json:"want,omitempty"`
	Saw     string  `json:"saw,omitempty"`
	Ref     string  `json:"ref,omitempty"`
	Seconds float64 `json:"seconds"`
	// Trace is what was sent and received.
	Trace []string `json:"trace,omitempty"`
}

// Run runs checks, and gives each result to done, in the order of checks.
func Run(c Config, checks []Check, done func(Result)) {
	results := make([]chan Result, len(checks))
	turns := make(chan struct{}, max(c.Parallel, 1))
	var wg sync.WaitGroup
	var alone sync.RWMutex
	for i := range checks {
		results[i] = make(chan Result, 1)
	}
	wg.Go(func() {
		for i, check := range checks {
			turns <- struct{}{}
			wg.Go(func() {
				results[i] <- runChecked(c, check, &alone)
				<-turns
			})
		}
	})
	for _, r := range results {
		done(<-r)
	}
	wg.Wait()
}

// runChecked runs a check, beside others, and if it goes by time and finds a fault once more
// without others.
func runChecked(c Config, check Check, alone *sync.RWMutex) Result {
	alone.RLock()
	r := runOne(c, check)
	alone.RUnlock()
	if r.Outcome != Faulty || !check.timed || c.Parallel <= 1 {
		return r
	}
	alone.Lock()
	defer alone.Unlock()
	return runOne(c, check)
}

func runOne(c Config, check Check) (r Result) {
	t := &T{role: c.Role, command: c.Command, patience: c.Patience, began: time.Now(), ref: check.Ref}
	r = Result{Check: string(c.Role) + "/" + check.Name, Outcome: Passed}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			r.Outcome, r.Want, r.Saw, r.Ref = Faulty, p.want, p.saw+t.dead(), p.ref
		case unsupported:
			r.Outcome, r.Want, r.Saw, r.Ref = Skipped, "the operation "+p.op, "unsupported", refDriver
		case trouble:
			r.Outcome, r.Saw = Trouble, p.err.Error()
		default:
			panic(p)
		}
		t.close()
		if t.dir != "" {
			_ = os.RemoveAll(t.dir)
		}
		r.Seconds = time.Since(t.began).Seconds()
		t.mu.Lock()
		defer t.mu.Unlock()
		r.Trace = t.trace
	}()
	check.run(t)
	t.quit()
	return r
}

// dead tells of drivers that have ended without being told to.
func (t *T) dead() string {
	for _, s := range t.sessions {
		select {
		case <-s.ended:
			if !s.closed && !s.blamed {
				return "; the driver " + s.lastWords()
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ""
}

// Line is the result in one line.
func (r Result) Line() string {
	switch r.Outcome {
	case Faulty:
		return fmt.Sprintf("FAULT  %s: want %s; saw %s (%s)", r.Check, r.Want, r.Saw, r.Ref)
	case Skipped:
		return fmt.Sprintf("skip   %s: needs %s (%s)", r.Check, r.Want, r.Ref)
	case Trouble:
		return fmt.Sprintf("ERROR  %s: %s", r.Check, r.Saw)
	}
	return fmt.Sprintf("ok     %s (%.1f s)", r.Check, r.Seconds)
}

// tempDir is for files of the check.
func (t *T) tempDir() string {
	if t.dir == "" {
		dir, err := os.MkdirTemp("", "slicer-conformance")
		if err != nil {
			panic(trouble{err})
		}
		t.dir = dir
	}
	return t.dir
}
