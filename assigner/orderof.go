package assigner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// orderOf checks a request, and says how it is applied.
func (v adminService) orderOf(ctx context.Context, job store.Job, home *storeWatch, m *slicerv1.GiveOrderRequest) (order, error) {
	name := job.Config.Name
	switch x := m.GetOrder().(type) {
	case *slicerv1.GiveOrderRequest_Freeze:
		return freezeOrder(x.Freeze.GetForMs())
	case *slicerv1.GiveOrderRequest_Unfreeze:
		return unfreezeOrder(), nil
	case *slicerv1.GiveOrderRequest_Pin:
		s, called, err := rangeOf(x.Pin)
		if err != nil {
			return order{}, err
		}
		if err := v.mustKnow(ctx, name, home, x.Pin.GetTask()); err != nil {
			return order{}, err
		}
		return pinOrder(s, called, x.Pin.GetTask()), nil
	case *slicerv1.GiveOrderRequest_Unpin:
		s, called, err := rangeOf(x.Unpin)
		return unpinOrder(s, called), err
	case *slicerv1.GiveOrderRequest_Exclude:
		if err := v.mustKnow(ctx, name, home, x.Exclude.GetTask()); err != nil {
			return order{}, err
		}
		return v.excludeOrder(ctx, name, home, x.Exclude.GetTask()), nil
	case *slicerv1.GiveOrderRequest_Include:
		return includeOrder(x.Include.GetTask()), store.ValidateTaskName(x.Include.GetTask())
	case *slicerv1.GiveOrderRequest_Rollback:
		return v.rollbackOrder(ctx, job, home, assignment.Generation(x.Rollback.GetGeneration()), x.Rollback.GetFreeze())
	}
	return order{}, &assignment.FieldError{Field: "order", Value: "missing", Allowed: "freeze, unfreeze, pin, unpin, exclude, include or rollback"}
}

// maxKeySaid bounds what a history says of a key, in bytes.
const maxKeySaid = 100

// rangeOf is the range that an order is about, and what the history is to call it.
func rangeOf(m interface {
	GetStart() uint64
	GetEnd() uint64
	GetKey() []byte
}) (s assignment.Slice, called string, err error) {
	s = assignment.Slice{Start: assignment.SliceKey(m.GetStart()), End: assignment.SliceKey(m.GetEnd())}
	if err := s.Valid(); err != nil {
		return s, "", err
	}
	key := string(m.GetKey())
	if key == "" {
		return s, s.String(), nil
	}
	if k := assignment.KeyOf(key); s.Start != k || s.End != k+1 {
		return s, "", &assignment.FieldError{Field: "key", Value: key, Allowed: fmt.Sprintf("the key of %s, or none", s)}
	}
	return s, fmt.Sprintf("key %q (%s)", assignment.Clip(key, maxKeySaid), s), nil
}

func freezeOrder(ms int64) (order, error) {
	if ms < 0 || ms > store.MaxFreeze.Milliseconds() {
		return order{}, &assignment.FieldError{Field: "for", Value: time.Duration(min(max(ms, -1<<40), 1<<40)) * time.Millisecond,
			Allowed: fmt.Sprintf("above 0, to %s, or 0 for a freeze that lasts until it is lifted", store.MaxFreeze)}
	}
	d := time.Duration(ms) * time.Millisecond
	action := "freeze"
	if d > 0 {
		action += " for " + d.String()
	}
	return order{action: action, edit: func(c *store.Overrides, s store.Stamp) (note string, err error) {
		if c.Freeze != nil {
			note = "takes the place of the freeze by " + c.Freeze.By()
		}
		f := &store.Freeze{Stamp: s, Order: c.Version}
		if d > 0 {
			f.Until = s.When.Add(d)
		}
		c.Freeze = f
		return note, nil
	}}, nil
}

func unfreezeOrder() order {
	return order{action: "unfreeze", edit: func(c *store.Overrides, _ store.Stamp) (string, error) {
		note := "it was not frozen by order"
		if c.Freeze != nil {
			note = "lifted the freeze by " + c.Freeze.By()
		}
		c.Freeze = nil
		c.Thaws++ // the assigner's own is lifted, too
		return note, nil
	}}
}

func pinOrder(keys assignment.Slice, called, task string) order {
	return order{action: fmt.Sprintf("pin %s to %s", called, task), edit: func(c *store.Overrides, s store.Stamp) (note string, err error) {
		if x := c.Excludes(task); x != nil {
			return "", fmt.Errorf("%w: %s is excluded by %s; include it first", membership.ErrState, task, because(x.By(), x.Why))
		}
		c.Pins = slices.DeleteFunc(c.Pins, func(p store.Pin) bool {
			if p.Slice != keys {
				return false
			}
			note = fmt.Sprintf("takes the place of the pin to %s by %s", p.Task, p.By())
			return true
		})
		for _, p := range c.Pins {
			if _, overlap := p.Slice.Intersect(keys); overlap {
				return "", &assignment.FieldError{Field: "pin", Value: keys.String(),
					Allowed: fmt.Sprintf("keys that no other pin has: %s is pinned to %s; unpin that first", p.Slice, p.Task)}
			}
		}
		if len(c.Pins) == store.MaxPins {
			return "", tooMany("pins", store.MaxPins)
		}
		c.Pins = append(c.Pins, store.Pin{Stamp: s, Order: c.Version, Slice: keys, Task: task})
		slices.SortFunc(c.Pins, func(x, y store.Pin) int { return cmp.Compare(x.Slice.Start, y.Slice.Start) })
		return note, nil
	}}
}

func tooMany(what string, most int) error {
	return &assignment.FieldError{Field: what, Value: most + 1, Allowed: fmt.Sprintf("at most %d of a job", most)}
}

// because names the operator who gave an order, and the reason if there is one.
func because(who, why string) string {
	if why == "" {
		return who
	}
	return fmt.Sprintf("%s (%s)", who, why)
}

func unpinOrder(keys assignment.Slice, called string) order {
	return order{action: "unpin " + called, edit: func(c *store.Overrides, _ store.Stamp) (note string, err error) {
		c.Pins = slices.DeleteFunc(c.Pins, func(p store.Pin) bool {
			if _, overlap := p.Slice.Intersect(keys); !overlap {
				return false
			}
			if note == "" {
				note = "lifted:"
			}
			note += fmt.Sprintf(" %s at %s by %s", p.Slice, p.Task, p.By())
			return true
		})
		if note == "" {
			return "", fmt.Errorf("%w: %w", store.ErrNotFound, &assignment.FieldError{Field: "pin", Value: keys.String(), Allowed: "keys that are pinned; inspect shows which"})
		}
		return note, nil
	}}
}

func (v adminService) excludeOrder(ctx context.Context, job string, home *storeWatch, task string) order {
	return order{action: "exclude " + task, edit: func(c *store.Overrides, s store.Stamp) (note string, err error) {
		_, others, err := v.known(ctx, job, home, task, func(other string) bool { return c.Excludes(other) != nil })
		if err != nil {
			return "", err
		}
		if others == 0 {
			return "", fmt.Errorf("%w: no other task is running that could take the slices of %s", membership.ErrState, task)
		}
		i, there := at(c.Exclude, task)
		if there {
			return "it is excluded already, by " + c.Exclude[i].By(), nil
		}
		if len(c.Exclude) == store.MaxExcluded {
			return "", tooMany("excluded tasks", store.MaxExcluded)
		}
		c.Exclude = slices.Insert(c.Exclude, i, store.Exclusion{Stamp: s, Order: c.Version, Task: task})
		return "", nil
	}}
}

func includeOrder(task string) order {
	return order{action: "include " + task, edit: func(c *store.Overrides, _ store.Stamp) (string, error) {
		i, there := at(c.Exclude, task)
		if !there {
			return "", fmt.Errorf("%w: %w", store.ErrNotFound, &assignment.FieldError{Field: "task", Value: task, Allowed: "a task that is excluded; inspect shows which"})
		}
		note := "lifted the exclusion by " + c.Exclude[i].By()
		c.Exclude = slices.Delete(c.Exclude, i, i+1)
		return note, nil
	}}
}

func (v adminService) rollbackOrder(ctx context.Context, job store.Job, home *storeWatch, g assignment.Generation, freeze bool) (order, error) {
	o := order{action: fmt.Sprintf("rollback to generation %d", g), revert: func(c *store.Overrides, order int64) bool {
		return c.Rollback != nil && c.Rollback.Order == order && c.Lift(order)
	}}
	if freeze {
		o.action += ", and freeze"
	}
	if err := store.ValidateGeneration(g); err != nil {
		return o, err
	}
	target, err := home.backend.ReadGeneration(ctx, job.Config.Name, g)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return o, fmt.Errorf("job %s: %w: %w", job.Config.Name, store.ErrNotFound, &assignment.FieldError{Field: "generation", Value: int64(g),
			Allowed: "one that the store still keeps, of which slicerctl history names the newest"})
	case err != nil:
		return o, err
	case job.Config.Mode == assignment.Consistent && target.NumOwners() != target.NumSlices():
		return o, fmt.Errorf("%w: generation %d gives keys several owners, which consistent mode does not allow", membership.ErrState, g)
	}
	newest, err := home.backend.Read(ctx, job.Config.Name)
	if err == nil && newest.Generation() == g {
		err = fmt.Errorf("%w: generation %d is the newest", membership.ErrState, g)
	}
	o.edit = func(c *store.Overrides, s store.Stamp) (string, error) {
		if r := c.Rollback; r != nil {
			return "", fmt.Errorf("%w: the rollback to generation %d by %s is not carried out yet", membership.ErrState, r.Generation, r.By())
		}
		c.Rollback = &store.Rollback{Stamp: s, Order: c.Version, Generation: g}
		if freeze {
			c.Freeze = &store.Freeze{Stamp: s, Order: c.Version}
		}
		return "", nil
	}
	return o, err
}
