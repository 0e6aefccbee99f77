package fanout

import "github.com/slicer-project/slicer/assignment"

// Verdict is what becomes of an assignment that an assigner has sent.
type Verdict string

const (
	VerdictAccepted  Verdict = "accepted"
	VerdictStale     Verdict = "stale"     // not newer than what is held
	VerdictForeign   Verdict = "foreign"   // of another store, from an assigner that is not preferred
	VerdictMalformed Verdict = "malformed" // does not decode, or is not what it says it is
)

// judge decides whether next takes the place of held: never backwards within a store, and
// from one store to another only on the word of the preferred assigner, or in the second
// tier of the peer that is asked.
func judge(held, next *assignment.Assignment, preferred bool) Verdict {
	switch {
	case held == nil:
		return VerdictAccepted
	case held.StoreID() != next.StoreID() && preferred:
		return VerdictAccepted
	case held.StoreID() != next.StoreID():
		return VerdictForeign
	case next.Generation() > held.Generation():
		return VerdictAccepted
	case next.Generation() == held.Generation() && next.Checksum() != held.Checksum():
		return VerdictMalformed
	}
	return VerdictStale
}
