package demo

import "time"

// What happens in a run.
const (
	evShift      = "shift"      // other keys are hot from now on
	evKill       = "kill"       // a server is killed, without a drain
	evReassigned = "reassigned" // its keys belong to others
	evDrain      = "drain"      // a server is asked to give its keys up
	evDrained    = "drained"    // it has stopped, and no call has missed it
	evAdd        = "add"        // a server starts
	evJoined     = "joined"     // it owns keys
	evFlood      = "flood"      // ten times as many calls
	evCalm       = "calm"       // as many as before
	evTrouble    = "trouble"    // something did not go as it should
)

// event is one of them. Its JSON form is part of the output.
type event struct {
	AtMS   int64  `json:"at_ms"` // since the load began
	Kind   string `json:"kind"`
	Task   string `json:"task,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// step is an entry of the script: when to do what.
type step struct {
	at   time.Duration
	kind string
}

// script spreads what is done over the run. The last third is for the load to
// become even again. A trace brings its own shifts.
func script(cfg *Config) []step {
	part := func(x float64) time.Duration { return time.Duration(x * float64(cfg.Duration)) }
	if cfg.Overload {
		return []step{{part(.4), evFlood}, {part(.4) + floodLasts, evCalm}}
	}
	steps := []step{{part(.27), evShift}, {part(.42), evKill}, {part(.55), evDrain}, {part(.65), evAdd}}
	if cfg.Trace != "" {
		steps = steps[1:]
	}
	return steps
}

// expected are the events without which a run has not shown what it is for.
func expected(cfg *Config) []string {
	if cfg.Overload {
		return []string{evFlood, evCalm}
	}
	all := []string{evShift, evKill, evReassigned, evDrain, evDrained, evAdd, evJoined}
	if cfg.Trace != "" {
		// Whether there is load to give to a new server is up to the trace.
		all = []string{evKill, evReassigned, evDrain, evDrained, evAdd}
	}
	return all
}
