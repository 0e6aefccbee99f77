package assignment

import (
	"fmt"
	"slices"
)

// validate returns the positions of the tasks by name.
func validate(h *Header, tasks []Task, c *Columns) (names map[string]int, err error) {
	if err := h.validate(); err != nil {
		return nil, err
	}
	if names, err = validateTasks(tasks); err != nil {
		return nil, err
	}
	if err := validateSizes(len(c.Starts), len(c.Owners)); err != nil {
		return nil, err
	}
	if err := validateSince(h, c); err != nil {
		return nil, err
	}
	if err := c.validateStarts(0, len(c.Starts)); err != nil {
		return nil, err
	}
	if err := c.validateOffsets(); err != nil {
		return nil, err
	}
	return names, c.validateOwners(h, tasks, len(c.Starts))
}

func validateSizes(slices, owners int) error {
	switch {
	case slices < 1 || slices > MaxSlices:
		return &FieldError{"slices", slices, fmt.Sprintf("1 to %d", MaxSlices)}
	case owners > MaxOwnerships:
		return &FieldError{"owners", owners, fmt.Sprintf("at most %d", MaxOwnerships)}
	}
	return nil
}

// validateStarts looks at slices by number from first to below end.
func (c *Columns) validateStarts(first, end int) error {
	for i, s := range c.Starts[first:end] {
		i += first
		switch {
		case i == 0 && s != 0:
			return &FieldError{"first slice start", s.String(), "0"}
		case i > 0 && s <= c.Starts[i-1]:
			return &FieldError{"slice start", s.String(), "above the start before, " + c.Starts[i-1].String()}
		case s >= KeyspaceEnd:
			return &FieldError{"slice start", s.String(), "below " + KeyspaceEnd.String()}
		}
	}
	return nil
}

func (h *Header) validate() error {
	if err := ValidateJobName(h.Job); err != nil {
		return err
	}
	switch {
	case h.Generation <= 0 || h.Generation > MaxGeneration:
		return &FieldError{"generation", int64(h.Generation), fmt.Sprintf("1 to %d", MaxGeneration)}
	case h.Previous < 0 || h.Previous >= h.Generation:
		return &FieldError{"previous", int64(h.Previous), "0 or a generation before this one"}
	case h.Horizon < 0 || h.Horizon > h.Generation:
		return &FieldError{"horizon", int64(h.Horizon), "0 to the generation"}
	case h.Part != "" && !ValidToken(h.Part, MaxNameLen):
		return &FieldError{"part", h.Part, "a task's name, or none"}
	}
	return nil
}

func validateTasks(tasks []Task) (map[string]int, error) {
	if len(tasks) > MaxTasks {
		return nil, &FieldError{"tasks", len(tasks), fmt.Sprintf("at most %d", MaxTasks)}
	}
	names := make(map[string]int, len(tasks))
	for i := range tasks {
		if err := tasks[i].Validate(); err != nil {
			return nil, err
		}
		if i > 0 && tasks[i].Index <= tasks[i-1].Index {
			return nil, &FieldError{"task index", tasks[i].Index, fmt.Sprintf("above %d, that of the task before", tasks[i-1].Index)}
		}
		names[tasks[i].Name] = i
		if len(names) != i+1 {
			return nil, &FieldError{"task name", tasks[i].Name, "a name of its own"}
		}
	}
	return names, nil
}

func validateSince(h *Header, c *Columns) error {
	if len(c.SinceTable) > maxSinceDistinct {
		return &FieldError{"since generations", len(c.SinceTable), fmt.Sprintf("at most %d distinct", maxSinceDistinct)}
	}
	below := h.Generation + 1
	for _, g := range c.SinceTable {
		if g >= below || g <= h.Horizon {
			return &FieldError{"since", int64(g), fmt.Sprintf("after horizon %d and before %d", h.Horizon, below)}
		}
		below = g
	}
	if c.Since != nil && len(c.Since) != len(c.Owners) {
		return &FieldError{"since entries", len(c.Since), fmt.Sprintf("%d, one an owner", len(c.Owners))}
	}
	for _, s := range c.Since {
		if int(s) > len(c.SinceTable) {
			return &FieldError{"since entry", s, fmt.Sprintf("at most %d", len(c.SinceTable))}
		}
	}
	return nil
}

// validateOffsets looks at how many there are, and where they begin and end.
func (c *Columns) validateOffsets() error {
	n := len(c.Starts)
	switch {
	case c.Offsets == nil && len(c.Owners) != n:
		return &FieldError{"owners", len(c.Owners), fmt.Sprintf("%d, one a slice", n)}
	case c.Offsets != nil && len(c.Offsets) != n+1:
		return &FieldError{"offsets", len(c.Offsets), fmt.Sprintf("%d, one more than slices", n+1)}
	case c.Offsets != nil && (c.Offsets[0] != 0 || int(c.Offsets[n]) != len(c.Owners)):
		return &FieldError{"offsets", fmt.Sprintf("%d to %d", c.Offsets[0], c.Offsets[n]), fmt.Sprintf("0 to %d, the number of owners", len(c.Owners))}
	}
	return nil
}

// validateOwners looks at those of n slices, which may be without starts.
func (c *Columns) validateOwners(h *Header, tasks []Task, n int) error {
	for _, o := range c.Owners {
		if int(o) >= len(tasks) {
			return &FieldError{"owner", o, fmt.Sprintf("a position in the table of %d tasks", len(tasks))}
		}
	}
	if c.Offsets == nil {
		return nil // each slice has one
	}
	least := uint32(1)
	if h.Part != "" {
		least = 0
	}
	slice := func(i int) string {
		if c.Starts == nil {
			return fmt.Sprintf("new slice %d", i)
		}
		return "slice " + c.Starts[i].String()
	}
	for i := range n {
		lo, hi := c.Offsets[i], c.Offsets[i+1]
		if hi == lo+1 && hi <= uint32(len(c.Owners)) {
			continue
		}
		if lo > hi || hi > uint32(len(c.Owners)) || hi-lo < least || hi-lo > MaxReplicas {
			return &FieldError{"replicas", int64(hi) - int64(lo), fmt.Sprintf("%d to %d in %s", least, MaxReplicas, slice(i))}
		}
		if o, ok := repeated(c.Owners[lo:hi]); ok {
			return &FieldError{"owner", tasks[o].Name, "once in " + slice(i)}
		}
	}
	return nil
}

// repeated returns one of a slice's owners that is there twice, false if all are distinct.
func repeated(owners []uint32) (uint32, bool) {
	if len(owners) > 16 { // as few are compared in no more time than it takes to sort them
		var all [MaxReplicas]uint32
		owners = all[:copy(all[:], owners)]
		slices.Sort(owners)
		for i, o := range owners[1:] {
			if o == owners[i] {
				return o, true
			}
		}
		return 0, false
	}
	for i, o := range owners {
		if slices.Contains(owners[:i], o) {
			return o, true
		}
	}
	return 0, false
}
