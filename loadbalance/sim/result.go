package sim

import (
	"math"
	"slices"
)

// Round is what happened in one window. Imbalance is the largest task load over
// the mean task load.
type Round struct {
	StartMS  int64   `json:"start_ms"`
	Requests float64 `json:"requests"`
	// Imbalance is that of the window's real load under the assignment that was
	// in force during it; Post that of the same load under the assignment that
	// was then decided.
	Imbalance float64 `json:"imbalance"`
	Post      float64 `json:"post"`
	// Floor is what no assignment of whole keys can go below.
	Floor float64 `json:"floor"`
	// Rest is Post among the tasks that hold no key above the mean task load.
	Rest float64 `json:"rest"`
	// KeyChurn is the share of the keyspace, and LoadChurn the share of the load,
	// that came to tasks that did not own it.
	KeyChurn  float64 `json:"key_churn"`
	LoadChurn float64 `json:"load_churn"`
	// Moves are changes of owners, whatever the algorithm: for each piece of the
	// keyspace that no boundary of slices before or after cuts, how many owners it got
	// or how many it lost, whichever are more.
	Moves int `json:"moves"`
	// Changed says that slices or owners changed: a generation would be written.
	Changed bool `json:"changed"`
	// Splits and Merges are decisions of weighted-move and published; 0 of others.
	Splits   int     `json:"splits"`
	Merges   int     `json:"merges"`
	Slices   int     `json:"slices"`
	Replicas int     `json:"replicas"` // owners of all slices together
	DecideMS float64 `json:"decide_ms"`

	// Demand is the largest load of a task by what it can carry; 0 if that is not known.
	Demand float64 `json:"demand,omitempty"`

	shifted bool
}

// Summary is over the rounds of a replay.
type Summary struct {
	MeanImbalance     float64 `json:"mean_imbalance"`
	P95Imbalance      float64 `json:"p95_imbalance"`
	MaxImbalance      float64 `json:"max_imbalance"`
	FinalImbalance    float64 `json:"final_imbalance"`
	MeanOverFloor     float64 `json:"mean_over_floor"`
	MeanPostOverFloor float64 `json:"mean_post_over_floor"`
	MeanRest          float64 `json:"mean_rest"`
	MeanKeyChurn      float64 `json:"mean_key_churn"`
	MeanLoadChurn     float64 `json:"mean_load_churn"`
	MaxSlicesPerTask  float64 `json:"max_slices_per_task"`
	// ChangedRounds is the share of the rounds that changed slices or owners.
	ChangedRounds float64 `json:"changed_rounds"`
}

// Result is one replay through one algorithm.
type Result struct {
	Algorithm string  `json:"algorithm"`
	Tasks     int     `json:"tasks"`
	Rounds    []Round `json:"rounds"`
	Summary   Summary `json:"summary"`
	// Motion is of the replay of a scene, set by its caller.
	Motion *Motion `json:"motion,omitempty"`
}

// Summarize is over some rounds of a job of n tasks; all zero if there are none.
func Summarize(rounds []Round, n int) Summary {
	var s Summary
	if len(rounds) == 0 {
		return s
	}
	all := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		all = append(all, r.Imbalance)
		s.MeanImbalance += r.Imbalance
		s.MeanOverFloor += r.Imbalance / r.Floor
		s.MeanPostOverFloor += r.Post / r.Floor
		s.MeanRest += r.Rest
		s.MeanKeyChurn += r.KeyChurn
		s.MeanLoadChurn += r.LoadChurn
		if r.Changed {
			s.ChangedRounds++
		}
		s.MaxSlicesPerTask = max(s.MaxSlicesPerTask, float64(r.Slices)/float64(max(n, 1)))
	}
	for _, m := range []*float64{&s.MeanImbalance, &s.MeanOverFloor, &s.MeanPostOverFloor, &s.MeanRest, &s.MeanKeyChurn, &s.MeanLoadChurn, &s.ChangedRounds} {
		*m /= float64(len(rounds))
	}
	s.FinalImbalance = rounds[len(rounds)-1].Imbalance
	slices.Sort(all)
	s.MaxImbalance = all[len(all)-1]
	s.P95Imbalance = all[int(math.Ceil(.95*float64(len(all))))-1]
	return s
}

// Shifts counts how often the hot keys moved and how many of those times the
// imbalance after deciding never fell below limit before they moved again. A
// shift that the replay ends right after does not count.
func Shifts(rounds []Round, limit float64) (shifts, unrecovered int) {
	for i := 0; i < len(rounds); {
		if !rounds[i].shifted {
			i++
			continue
		}
		ok, j := rounds[i].Post < limit, i+1
		for ; j < len(rounds) && !rounds[j].shifted; j++ {
			ok = ok || rounds[j].Post < limit
		}
		if j-i > 1 {
			shifts++
			if !ok {
				unrecovered++
			}
		}
		i = j
	}
	return shifts, unrecovered
}
