package generate

import "github.com/slicer-project/slicer/loadbalance"

// rounds is what became of them: of the one that is to be written, and of the last.
type rounds struct {
	*env
	pending  *Planned // to be written next
	balance  *loadbalance.State
	last     Round  // the last one that has something to tell
	lastSkip string // label of the last skipped round, so that it is said once
	floor    float64
}

// begin starts anew when this assigner has become preferred.
func (rs *rounds) begin() { rs.balance, rs.last, rs.floor = nil, Round{}, 0 }

// finish notes what became of a round. Rounds that are left out for one and the
// same reason are said once.
func (rs *rounds) finish(r Round) {
	skipped := r.Skipped != "" && r.Generation == 0
	if skipped {
		level := levelInfo
		if r.Label == rs.lastSkip {
			level = levelDebug
		}
		rs.say(level, "round skipped", "round", string(r.Why), "reason", r.Skipped)
		rs.lastSkip = r.Label
	} else if r.Why.forLoad() || r.Generation != 0 {
		rs.lastSkip = ""
	}
	if skipped || r.Why.forLoad() || r.Generation != 0 {
		rs.last = r
	}
	if r.Stats.Floor > 0 {
		rs.floor = r.Stats.Floor
	}
	rs.outputs.Rounds = append(rs.outputs.Rounds, r)
}
