package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// MaxNamesSize bounds encoded Names, in bytes: well below what etcd takes. Ten thousand tasks
// whose names have 25 bytes take a quarter of it, as long as they share an identity or
// theirs end in their names.
const MaxNamesSize = 1 << 20

// Names says which identities hold the names of a job's tasks, so that an assigner that
// takes over knows it. The zero value is that of a job of which nothing was put. Names are
// not changed once they are shared.
type Names struct {
	// Version grows by one with each write, from 1. It starts again when the job is deleted.
	Version int64
	Held    []Held // in order of task, each once
	// AsOf is the largest generation that there can have been when it was so: the Unix
	// milliseconds of then, or the newest generation if that was larger. 0 when it is not
	// known.
	AsOf assignment.Generation
}

// Held is a name and the identity that holds it.
type Held struct{ Task, Identity string }

// NameKeeper keeps Names. A Store implements it.
type NameKeeper interface {
	// Names returns what was put last, or ErrNotFound when there is no such job.
	Names(ctx context.Context, job string) (Names, error)
	// PutNames stores next, which is valid, if the version before is stored; else it returns
	// ErrConflict. ErrNotFound is as above. After an error that is neither, next may have
	// been stored, or not. No watch tells of it.
	PutNames(ctx context.Context, job string, next Names) error
}

// Of finds the identity that holds a name, "" if none does.
func (n Names) Of(task string) string {
	i, ok := slices.BinarySearchFunc(n.Held, task, func(h Held, task string) int { return strings.Compare(h.Task, task) })
	if !ok {
		return ""
	}
	return n.Held[i].Identity
}

// Bytes that a name and an identity take beside their own, and the numbers.
const nameOverhead, identityOverhead, versionSize = 4, 12, 24

// size is about how long n is when it is encoded, rather more than less, and by identity.
func (n *Names) size() (all int, each map[string]int) {
	all, each = versionSize, make(map[string]int)
	for _, h := range n.Held {
		id := shorten(h)
		if each[id] == 0 {
			each[id] = identityOverhead + len(id)
			all += each[id]
		}
		each[id] += nameOverhead + len(h.Task)
		all += nameOverhead + len(h.Task)
	}
	return all, each
}

// Size is about how long n is when it is encoded, in bytes: at least as long.
func (n *Names) Size() int {
	all, _ := n.size()
	return all
}

// Fit leaves names out until n is within MaxNamesSize, and returns how many. It takes them
// from those that hold most, so that the many names of one do not push out the few of another. Not for
// Names that are shared.
func (n *Names) Fit() (left int) {
	all, each := n.size()
	if all <= MaxNamesSize {
		return 0
	}
	sizes := make([]int, 0, len(each))
	for _, s := range each {
		sizes = append(sizes, s)
	}
	slices.Sort(sizes)
	room, most := MaxNamesSize-versionSize, 0
	for i, s := range sizes { // each may have as much as those after it could have, too
		if most = room / (len(sizes) - i); s > most {
			break
		}
		room -= s
	}
	used := make(map[string]int)
	n.Held = slices.DeleteFunc(slices.Clone(n.Held), func(h Held) bool {
		id := shorten(h)
		if used[id] == 0 {
			used[id] = identityOverhead + len(id)
		}
		if used[id] += nameOverhead + len(h.Task); used[id] <= most {
			return false
		}
		left++
		return true
	})
	return left
}

// Validate names the first field that is not allowed.
func (n *Names) Validate() error {
	switch {
	case n.Version < 0 || n.Version > maxOrder:
		return &assignment.FieldError{Field: "version of names", Value: n.Version, Allowed: fmt.Sprintf("0 to %d", int64(maxOrder))}
	case n.AsOf < 0 || n.AsOf > assignment.MaxGeneration:
		return &assignment.FieldError{Field: "as of", Value: int64(n.AsOf), Allowed: fmt.Sprintf("0 to %d", int64(assignment.MaxGeneration))}
	case n.Size() > MaxNamesSize:
		return &assignment.FieldError{Field: "names", Value: n.Size(), Allowed: fmt.Sprintf("at most %d bytes", MaxNamesSize)}
	}
	for i, h := range n.Held {
		if err := ValidateTaskName(h.Task); err != nil {
			return err
		}
		if !access.Identity(h.Identity).Valid() {
			return &assignment.FieldError{Field: "identity", Value: assignment.Clip(h.Identity, 80), Allowed: "a SPIFFE id, a DNS name in lower case, or " + string(access.Anonymous)}
		}
		if i > 0 && h.Task <= n.Held[i-1].Task {
			return &assignment.FieldError{Field: "name", Value: h.Task, Allowed: "tasks in order, each once"}
		}
	}
	return nil
}

// taskPlace ends a shortened identity: no identity has a brace in it.
const taskPlace = "{task}"

// shorten gives tasks whose identities end in their names one identity.
func shorten(h Held) string {
	if before, ok := strings.CutSuffix(h.Identity, h.Task); ok && strings.HasSuffix(before, "/") {
		return before + taskPlace
	}
	return h.Identity
}

// NamesToProto never fails.
func NamesToProto(n Names) *slicerv1.StoredNames {
	m := &slicerv1.StoredNames{Version: n.Version, AsOf: int64(n.AsOf)}
	by := make(map[string]*slicerv1.HeldNames)
	for _, h := range n.Held {
		id := shorten(h)
		if by[id] == nil {
			by[id] = &slicerv1.HeldNames{Identity: id}
			m.Held = append(m.Held, by[id])
		}
		by[id].Tasks = append(by[id].Tasks, h.Task)
	}
	return m
}

// NamesFromProto validates what it reads.
func NamesFromProto(m *slicerv1.StoredNames) (Names, error) {
	n := Names{Version: m.GetVersion(), AsOf: assignment.Generation(m.GetAsOf())}
	size := 0
	for _, g := range m.GetHeld() {
		before, short := strings.CutSuffix(g.GetIdentity(), taskPlace)
		for _, task := range g.GetTasks() {
			h := Held{task, g.GetIdentity()}
			if short {
				h.Identity = before + task
			}
			if size += nameOverhead + len(task); size > MaxNamesSize { // what is beyond the bounds is not gone through
				return Names{}, &assignment.FieldError{Field: "names", Value: size, Allowed: fmt.Sprintf("at most %d bytes", MaxNamesSize)}
			}
			n.Held = append(n.Held, h)
		}
	}
	slices.SortFunc(n.Held, func(a, b Held) int { return cmp.Compare(a.Task, b.Task) })
	if err := n.Validate(); err != nil {
		return Names{}, err
	}
	return n, nil
}
