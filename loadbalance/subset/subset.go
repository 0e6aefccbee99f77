package subset

import "math"

// MaxTasks bounds the number of tasks of either job, and so every task index:
// 16,777,216. It is far above any real job; it keeps products of two counts
// inside 64 bits and a hostile index from reserving memory without limit.
const MaxTasks = 1 << 24

// An Algorithm chooses the backend tasks that a frontend task connects to.
//
// Implementations are immutable values: safe for use by any number of
// goroutines at once, and a function of their arguments alone, so that two
// processes (of whatever version) that agree on the arguments agree on the
// subset.
type Algorithm interface {
	// Name identifies the algorithm and its variant, as [ByName] reads it.
	Name() string

	// Append appends the subset of the given frontend task (numbered from 0)
	// to dst and returns the extended slice. The subset holds
	// min(s.Size, s.Backends.Len()) different tasks, all of them present, most
	// preferred first.
	//
	// The spare capacity of dst may be used as working memory, also beyond the
	// subset. Append does not allocate if that capacity is
	// s.Backends.Len() or more; several algorithms need only Size.
	//
	// The error is a *[FieldError]; dst is then returned as it was.
	Append(dst []int, s Shape, frontend int) ([]int, error)
}

// A Shape is the scenario that an algorithm divides: M frontend tasks, each to
// be connected to k of N backend tasks.
type Shape struct {
	// Frontends is M, 1 to MaxTasks, or 0 where it is not known. Only an
	// algorithm for which [NeedsFrontends] holds reads it (and so has
	// frontend churn); where it is given, a frontend's number is below it.
	Frontends int

	// Backends is the set of N tasks to choose from, not empty.
	Backends Backends

	// Size is k, 1 or more. A Size of N or more selects every backend.
	Size int
}

// NeedsFrontends reports whether a's subsets depend on Shape.Frontends. An
// algorithm says so by a method NeedsFrontends() bool.
func NeedsFrontends(a Algorithm) bool {
	n, ok := a.(interface{ NeedsFrontends() bool })
	return ok && n.NeedsFrontends()
}

// size validates s for one frontend and returns the size its subset will have.
func (s Shape) size(frontend int) (int, error) {
	maxFrontend := MaxTasks - 1
	if s.Frontends != 0 {
		if err := checkRange("Frontends", s.Frontends, 1, MaxTasks); err != nil {
			return 0, err
		}
		maxFrontend = s.Frontends - 1
	}
	if err := checkRange("frontend", frontend, 0, maxFrontend); err != nil {
		return 0, err
	}
	if err := checkRange("Backends", s.Backends.Len(), 1, MaxTasks); err != nil {
		return 0, err
	}
	if err := checkRange("Size", s.Size, 1, math.MaxInt); err != nil {
		return 0, err
	}
	return min(s.Size, s.Backends.Len()), nil
}
