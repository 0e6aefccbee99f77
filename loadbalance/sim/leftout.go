package sim

import "fmt"

// More left out than both of these, and a trace is taken for something else.
const (
	maxLeftOut      = 10
	maxLeftOutShare = .01
)

// LeftOut counts what a replay of a trace does without because it is not right.
type LeftOut struct {
	Count int
	Of    int         // all that there were
	First *TraceError // where the first is and what is wrong with it; nil if there is none

	what string
}

func (l *LeftOut) add(what string, e *TraceError) {
	if l.Count++; l.First == nil {
		l.what, l.First = what, e
	}
}

// String is for people, where there are any.
func (l *LeftOut) String() string {
	return fmt.Sprintf("%s left out: %d of %d; the first: %v", l.what, l.Count, l.Of, l.First)
}

// check is an error if they are too many, with what to do. It unwraps to the first.
func (l *LeftOut) check(remedy string) error {
	if l.Count <= maxLeftOut || float64(l.Count) <= maxLeftOutShare*float64(l.Of) {
		return nil
	}
	return fmt.Errorf("%s: %d of %d, which is more than %g%%; %sthe first: %w", l.what, l.Count, l.Of, 100*maxLeftOutShare, remedy, l.First)
}
