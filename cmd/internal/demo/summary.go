package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// What a run must reach to have done its job.
const (
	wantAvailability = .9998
	wantFirst        = 2.0 // imbalance that there is to repair, with the synthetic load
	wantFirstTasks   = 8   // on so many servers or more
	wantLast         = 1.3
	wantFit          = 1.1 // hottest key's share of a server up to which that is wanted in consistent mode
)

// Summary is what a run came to. Its JSON form is part of the output.
type Summary struct {
	Mode         string  `json:"mode"`
	Requests     int64   `json:"requests"`
	Errors       int64   `json:"errors"` // calls not answered within a second, a retry included
	Availability float64 `json:"availability"`
	Misrouted    int64   `json:"misrouted"`
	Retried      int64   `json:"retried"`
	// Flooded is what became of the calls of the flood, in order of falling criticality, in
	// the scene of overload; the numbers above are without them, and those of the two seconds after.
	Flooded     []Flooded `json:"flooded,omitempty"`
	Refused     int64     `json:"refused"`      // calls, once each time, by a server that does not own the key
	KillErrors  int64     `json:"kill_errors"`  // in consistent mode, until the dead server's lease had run out
	DrainErrors int64     `json:"drain_errors"` // while the drained server went
	HitRate     float64   `json:"hit_rate"`
	// Overlaps is how often a key was seen with two owners, in so many Looks at
	// some keys of all servers, in consistent mode.
	Overlaps int64 `json:"overlaps"`
	Looks    int64 `json:"looks"`
	// Imbalance is largest over mean load of the live tasks: in the first second
	// or two, under the first assignment, and at the end.
	ImbalanceFirst float64 `json:"imbalance_first"`
	ImbalanceLast  float64 `json:"imbalance_last"`
	// KeyChurnPerRound is the mean share of the keyspace that came to another
	// task in a new generation, whatever the cause.
	KeyChurnPerRound float64 `json:"key_churn_per_round"`
	Generations      int     `json:"generations"`
	LookupP50NS      uint32  `json:"lookup_p50_ns"`
	LookupP99NS      uint32  `json:"lookup_p99_ns"`
	Events           []event `json:"events"`
	// StalledMS is for how long the process had no CPU to make calls with.
	StalledMS int64 `json:"stalled_ms"`
	OK        bool  `json:"ok"`
	// Failures say what a run did not reach.
	Failures []string `json:"failures,omitempty"`
}

// judge fills in OK and Failures, for a hottest key with that share of the load.
func (s *Summary) judge(cfg *Config, hottest float64) {
	tasks, trace := cfg.Tasks, cfg.Trace != ""
	consistent := s.Mode == assignment.Consistent.String()
	fail := func(format string, args ...any) { s.Failures = append(s.Failures, fmt.Sprintf(format, args...)) }
	if s.Requests == 0 {
		fail("no call was made")
	} else if a := s.Availability + float64(s.KillErrors)/float64(s.Requests); a < wantAvailability {
		fail("availability is %.5f, at least %.4f is wanted", a, wantAvailability)
	}
	if s.Overlaps > 0 {
		fail("a key had two owners, %d times", s.Overlaps)
	}
	if consistent && s.Looks == 0 {
		fail("no look for keys with two owners was made")
	}
	if s.DrainErrors > 0 {
		fail("%d calls were lost while a server was drained", s.DrainErrors)
	}
	if cfg.Overload {
		s.judgeFlood(fail)
	}
	// What a trace's load allows is not known, and a flood leaves its traces.
	if !trace && !cfg.Overload {
		if s.ImbalanceFirst <= wantFirst && tasks >= wantFirstTasks && !consistent {
			fail("imbalance was %.2f at first, above %.1f is wanted to show anything", s.ImbalanceFirst, wantFirst)
		}
		if s.ImbalanceLast > wantLast && !(consistent && hottest*float64(tasks) > wantFit) {
			fail("imbalance is %.2f at the end, at most %.1f is wanted", s.ImbalanceLast, wantLast)
		}
	}
	var missing []string
	for _, kind := range expected(cfg) {
		if !slices.ContainsFunc(s.Events, func(e event) bool { return e.Kind == kind }) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		fail("did not happen: %s", strings.Join(missing, ", "))
	}
	for _, e := range s.Events {
		if e.Kind == evTrouble {
			fail("%s: %s", e.Task, e.Detail)
		}
	}
	s.OK = len(s.Failures) == 0
}

// Err is why the run failed, or nil.
func (s *Summary) Err() error {
	if s.OK {
		return nil
	}
	return fmt.Errorf("the demo failed: %s", strings.Join(s.Failures, "; "))
}

// percentile returns a quantile of samples, which it sorts.
func percentile(samples []uint32, q float64) uint32 {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[min(int(q*float64(len(samples))), len(samples)-1)]
}
