package lease

import (
	"fmt"

	"github.com/slicer-project/slicer/assignment"
)

// Kind is a row of the protocol's table: what an assigner does next.
type Kind uint8

// The steps, in the order in which they follow one another.
const (
	Idle    Kind = iota // nothing is called for
	Write               // head = an assignment that is stored: the first one, or the next
	Boot                // the first guard
	Span                // the bridge is created
	Recall              // the guard is recalled
	Rewrite             // the guard is at the new generation
	Retire              // the bridge is recalled
	Close               // the bridge is deleted
)

var kindNames = [...]string{"idle", "write", "boot", "span", "recall", "rewrite", "retire", "close"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Step is one transaction on a job's records.
type Step struct {
	Kind Kind
	// Head is what Write makes the head.
	Head assignment.Generation
	// Wait says that there are readers on one side of the change only: the step
	// should wait for them, for a bounded time.
	Wait bool
}

// Next says which step the records call for. wanted is the newest generation
// that is stored, whole, or 0 if no change is wanted: it may come in force
// after the one that is, and only a steady job takes it up. The caller gets the
// same answer: nothing is remembered or decided anew in the middle of a change.
func Next(s State, wanted assignment.Generation) Step {
	g, b := s.Guard, s.Bridge
	switch {
	case g == Guard{} && s.Head == 0:
		if wanted > 0 {
			return Step{Kind: Write, Head: wanted}
		}
	case g == Guard{}:
		return Step{Kind: Boot}
	case !g.Open:
		return Step{Kind: Rewrite}
	case b == Bridge{} && s.Head > g.Generation:
		if noBridge {
			return Step{Kind: Recall}
		}
		return Step{Kind: Span}
	case b == Bridge{}:
		if wanted > s.Head {
			return Step{Kind: Write, Head: wanted}
		}
	case b.Open && b.From == g.Generation:
		return Step{Kind: Recall, Wait: s.GuardOnly > 0}
	case b.Open:
		return Step{Kind: Retire, Wait: s.BridgeOnly > 0}
	default:
		return Step{Kind: Close}
	}
	return Step{}
}

// Outcome is what a step makes of the records it was decided on, and which of
// them must have no readers in the very transaction that writes it.
type Outcome struct {
	Records
	NoGuardReaders, NoBridgeReaders bool
}

// Outcome returns what the step makes of the records, or an error if the records
// do not call for it: no other order of steps can be written.
func (s Step) Outcome(r Records) (Outcome, error) {
	if Next(State{Records: r}, s.Head).Kind != s.Kind || s.Kind == Idle {
		return Outcome{}, fmt.Errorf("step %s: the records, head %d, guard %+v, bridge %+v, do not call for it", s.Kind, r.Head, r.Guard, r.Bridge)
	}
	o := Outcome{Records: r}
	switch s.Kind {
	case Write:
		o.Head = s.Head
	case Boot:
		o.Guard = Guard{r.Head, true}
		o.NoGuardReaders = true
	case Span:
		o.Bridge = Bridge{r.Guard.Generation, r.Head, true}
		o.NoBridgeReaders = true
	case Recall:
		o.Guard.Open = false
	case Rewrite:
		o.Guard = Guard{r.Bridge.To, true}
		if noBridge {
			o.Guard.Generation = r.Head
		}
		o.NoGuardReaders = true
	case Retire:
		o.Bridge.Open = false
	case Close:
		o.Bridge = Bridge{}
		o.NoBridgeReaders = true
	}
	return o, nil
}

// barred says that there are readers of what the step needs to be without any.
func (s Step) barred(read State) bool {
	o, err := s.Outcome(read.Records)
	return err == nil && (o.NoGuardReaders && read.GuardReaders > 0 || o.NoBridgeReaders && read.BridgeReaders > 0)
}
