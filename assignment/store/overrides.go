package store

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/access"
)

// Bounds of what operators may lay down.
const (
	// MaxWho and MaxWhy bound the words of a Stamp, in bytes; MaxWho also its peer.
	MaxWho, MaxWhy = 128, 512
	// MaxPins, MaxExcluded and MaxDrains bound the overrides in force at once.
	MaxPins, MaxExcluded, MaxDrains = 256, 256, 256
	// MaxFreeze is the longest freeze that ends by itself.
	MaxFreeze = 30 * 24 * time.Hour
)

// Stamp says who did something, from where, when and why.
type Stamp struct {
	// Identity is that of the caller's certificate, at most assignment.MaxIdentityLen bytes;
	// empty in what was stored before there was one, and for what an assigner did by itself.
	Identity string
	// Who is as they say, a comment, and Peer the network address that they spoke from.
	Who, Peer string
	// When is by the assigner's wall clock, in whole milliseconds.
	When time.Time
	Why  string
}

// By names who did it, for people: the identity or, where there is none, what they say.
func (s *Stamp) By() string {
	if s.Identity == "" || s.Identity == string(access.Anonymous) {
		return s.Who
	}
	return s.Identity
}

// Freeze stops everything that is not done by order of an operator.
type Freeze struct {
	Stamp
	// Order numbers it; see Overrides.
	Order int64
	// Until is zero when it lasts until it is lifted. Otherwise it lasts for as long as
	// from When to Until, from when the assigner that decides first saw it, and then
	// that assigner lifts it: clocks differ.
	Until time.Time
}

// Pin keeps a range of keys at one task alone, while that may own anything.
type Pin struct {
	Stamp
	Order int64
	Slice assignment.Slice
	Task  string
}

// Exclusion keeps a task from owning anything.
type Exclusion struct {
	Stamp
	Order int64
	Task  string
}

// Drain keeps a task from owning anything until it ends. It does not hold for another
// incarnation.
type Drain struct {
	Stamp
	Order       int64
	Task        string
	Incarnation uint64
}

// Rollback asks for the placement of an earlier generation.
type Rollback struct {
	Stamp
	Order      int64
	Generation assignment.Generation
}

// Overrides are what operators have in force for a job. The zero value is that of a job
// for which none was ever given. An Overrides is not changed once it is shared.
type Overrides struct {
	// Version is that of the newest order: each write takes the next number, and
	// numbers go on when a job is deleted and made anew. 0 is none.
	Version int64
	Freeze  *Freeze     // nil: none
	Pins    []Pin       // in order of key, none overlapping
	Exclude []Exclusion // in order of task
	Drains  []Drain     // in order of task
	// Rollback is nil when there is none to carry out any more.
	Rollback *Rollback
	// Thaws counts how often a freeze was lifted, the assigner's own included.
	Thaws int64
}

// Clone is a copy to change.
func (c Overrides) Clone() Overrides {
	c.Pins, c.Exclude, c.Drains = slices.Clone(c.Pins), slices.Clone(c.Exclude), slices.Clone(c.Drains)
	return c
}

// Excludes finds the order that excludes a task, nil if none does.
func (c *Overrides) Excludes(task string) *Exclusion {
	i, ok := slices.BinarySearchFunc(c.Exclude, task, func(x Exclusion, task string) int { return strings.Compare(x.Task, task) })
	if !ok {
		return nil
	}
	return &c.Exclude[i]
}

// DrainOf finds the drain of a task, of whichever incarnation, and otherwise where it
// would be.
func (c *Overrides) DrainOf(task string) (at int, ok bool) {
	return slices.BinarySearchFunc(c.Drains, task, func(x Drain, task string) int { return strings.Compare(x.Task, task) })
}

// Lift takes back what an order has laid down, and reports whether any of it was in
// force. Not for an Overrides that is shared.
func (c *Overrides) Lift(order int64) bool {
	n := len(c.Pins) + len(c.Exclude) + len(c.Drains)
	c.Pins = slices.DeleteFunc(c.Pins, func(p Pin) bool { return p.Order == order })
	c.Exclude = slices.DeleteFunc(c.Exclude, func(x Exclusion) bool { return x.Order == order })
	c.Drains = slices.DeleteFunc(c.Drains, func(d Drain) bool { return d.Order == order })
	lifted := len(c.Pins)+len(c.Exclude)+len(c.Drains) < n
	if c.Freeze != nil && c.Freeze.Order == order {
		c.Freeze, lifted = nil, true
	}
	if c.Rollback != nil && c.Rollback.Order == order {
		c.Rollback, lifted = nil, true
	}
	return lifted
}

// Fulfilled is c once its Rollback has been carried out: one version on.
func (c Overrides) Fulfilled() Overrides {
	c.Version++
	c.Rollback = nil
	return c
}

// Same reports whether the same overrides are in force, whatever the versions, and
// whatever is drained: that shows in the tasks.
func (c *Overrides) Same(o *Overrides) bool {
	number := func(f *Freeze, r *Rollback) (n [2]int64) {
		if f != nil {
			n[0] = f.Order
		}
		if r != nil {
			n[1] = r.Order
		}
		return n
	}
	return number(c.Freeze, c.Rollback) == number(o.Freeze, o.Rollback) && c.Thaws == o.Thaws &&
		slices.EqualFunc(c.Pins, o.Pins, func(a, b Pin) bool { return a.Order == b.Order && a.Slice == b.Slice }) &&
		slices.EqualFunc(c.Exclude, o.Exclude, func(a, b Exclusion) bool { return a.Order == b.Order && a.Task == b.Task })
}

// Validate names the first field that is not allowed.
func (c *Overrides) Validate() error {
	switch {
	case c.Version < 0 || c.Version > maxOrder:
		return &assignment.FieldError{Field: "order", Value: c.Version, Allowed: fmt.Sprintf("0 to %d", int64(maxOrder))}
	case len(c.Pins) > MaxPins:
		return &assignment.FieldError{Field: "pins", Value: len(c.Pins), Allowed: fmt.Sprintf("at most %d", MaxPins)}
	case len(c.Exclude) > MaxExcluded:
		return &assignment.FieldError{Field: "excluded tasks", Value: len(c.Exclude), Allowed: fmt.Sprintf("at most %d", MaxExcluded)}
	case len(c.Drains) > MaxDrains:
		return &assignment.FieldError{Field: "drained tasks", Value: len(c.Drains), Allowed: fmt.Sprintf("at most %d", MaxDrains)}
	case c.Thaws < 0:
		return &assignment.FieldError{Field: "thaws", Value: c.Thaws, Allowed: "0 or more"}
	}
	if f := c.Freeze; f != nil {
		if err := firstOf(c.given(f.Order), f.Stamp.Validate(), f.valid()); err != nil {
			return err
		}
	}
	for i, p := range c.Pins {
		if err := firstOf(c.given(p.Order), p.Stamp.Validate(), p.Slice.Valid(), ValidateTaskName(p.Task)); err != nil {
			return err
		}
		if i > 0 && p.Slice.Start < c.Pins[i-1].Slice.End {
			return &assignment.FieldError{Field: "pin", Value: p.Slice.String(), Allowed: "keys that no other pin has: " + c.Pins[i-1].Slice.String() + " is pinned"}
		}
	}
	for i, x := range c.Exclude {
		if err := firstOf(c.given(x.Order), x.Stamp.Validate(), ValidateTaskName(x.Task)); err != nil {
			return err
		}
		if i > 0 && x.Task <= c.Exclude[i-1].Task {
			return &assignment.FieldError{Field: "excluded task", Value: x.Task, Allowed: "tasks in order, each once"}
		}
	}
	for i, d := range c.Drains {
		if err := firstOf(c.given(d.Order), d.Stamp.Validate(), validTask(d.Task, d.Incarnation)); err != nil {
			return err
		}
		if i > 0 && d.Task <= c.Drains[i-1].Task {
			return &assignment.FieldError{Field: "drained task", Value: d.Task, Allowed: "tasks in order, each once"}
		}
	}
	if r := c.Rollback; r != nil {
		return firstOf(c.given(r.Order), r.Stamp.Validate(), ValidateGeneration(r.Generation))
	}
	return nil
}

// maxOrder leaves room to count on.
const maxOrder = 1 << 62

func (c *Overrides) given(order int64) error {
	if order < 1 || order > c.Version {
		return &assignment.FieldError{Field: "order", Value: order, Allowed: fmt.Sprintf("1 to %d", c.Version)}
	}
	return nil
}

func (f *Freeze) valid() error {
	if !f.Until.IsZero() && (f.Until.Before(f.When) || f.Until.Sub(f.When) > MaxFreeze) {
		return &assignment.FieldError{Field: "freeze for", Value: f.Until.Sub(f.When), Allowed: fmt.Sprintf("above 0, to %s", MaxFreeze)}
	}
	return nil
}

// Validate names the first field that is not allowed.
func (s *Stamp) Validate() error {
	return firstOf(
		ValidateWords("identity", s.Identity, assignment.MaxIdentityLen), ValidateWords("who", s.Who, MaxWho), ValidateWords("peer", s.Peer, MaxWho), ValidateWords("why", s.Why, MaxWhy),
		validTime(s.When))
}

// ValidateWords bounds what people write: at most so many bytes of UTF-8, with no
// control characters, on which it fits one line.
func ValidateWords(field, s string, most int) error {
	ok := len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
	if !ok {
		return &assignment.FieldError{Field: field, Value: s, Allowed: fmt.Sprintf("at most %d bytes of UTF-8 on one line", most)}
	}
	return nil
}

// ValidateTaskName reports why s cannot be a task's name.
func ValidateTaskName(s string) error { return validTask(s, 1) }

func validTask(name string, incarnation uint64) error {
	t := assignment.Task{Name: name, Incarnation: incarnation, Address: "x", Weight: 1}
	return t.Validate()
}

// ValidateGeneration reports whether g can be a stored generation's number.
func ValidateGeneration(g assignment.Generation) error {
	if g < 1 || g > assignment.MaxGeneration {
		return &assignment.FieldError{Field: "generation", Value: int64(g), Allowed: fmt.Sprintf("1 to %d", assignment.MaxGeneration)}
	}
	return nil
}

// validTime bounds a time to what milliseconds can say.
func validTime(t time.Time) error {
	if ms := t.UnixMilli(); !t.IsZero() && (ms < 0 || ms > int64(assignment.MaxGeneration)) {
		return &assignment.FieldError{Field: "time", Value: ms, Allowed: fmt.Sprintf("0 to %d, in Unix milliseconds", assignment.MaxGeneration)}
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
