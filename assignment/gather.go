package assignment

import "fmt"

// MaxTextSize bounds the text and JSON forms that are read, bytes.
const MaxTextSize = 512 << 20

// gatherer puts an assignment together from its text or JSON form, in which
// owners are names that may come before the tasks they are of.
type gatherer struct {
	h     Header
	tasks []Task
	c     Columns
	since []Generation // one an owner

	names map[string]uint32 // owners in order of first mention
	first []mention         // parallel: for each name
}

type mention struct {
	name string
	at   int // where in the input, as the parser counts
}

func (g *gatherer) task(t Task) error {
	if len(g.tasks) == MaxTasks {
		return &FieldError{"tasks", len(g.tasks) + 1, fmt.Sprintf("at most %d", MaxTasks)}
	}
	if err := t.Validate(); err != nil {
		return err
	}
	g.tasks = append(g.tasks, t)
	return nil
}

// owner adds an owner to the slice that the next call of slice ends.
func (g *gatherer) owner(name []byte, since Generation, at int) error {
	if len(g.c.Owners) == MaxOwnerships {
		return &FieldError{"owners", len(g.c.Owners) + 1, fmt.Sprintf("at most %d", MaxOwnerships)}
	}
	id, ok := g.names[string(name)]
	if !ok {
		if len(g.first) == MaxTasks {
			return &FieldError{"owner", string(name), fmt.Sprintf("one of at most %d tasks", MaxTasks)}
		}
		if g.names == nil {
			g.names = make(map[string]uint32)
		}
		id = uint32(len(g.first))
		g.first = append(g.first, mention{string(name), at})
		g.names[g.first[id].name] = id
	}
	g.c.Owners = append(g.c.Owners, id)
	g.since = append(g.since, since)
	return nil
}

// slice ends the slice of the owners since the last call.
func (g *gatherer) slice(start SliceKey) error {
	n := len(g.c.Starts)
	switch {
	case n == MaxSlices:
		return &FieldError{"slices", n + 1, fmt.Sprintf("at most %d", MaxSlices)}
	case n == 0 && start != 0:
		return &FieldError{"first slice start", start.String(), SliceKey(0).String()}
	case n > 0 && start <= g.c.Starts[n-1]:
		return &FieldError{"slice start", start.String(), "above the start before, " + g.c.Starts[n-1].String()}
	}
	if n == 0 {
		g.c.Offsets = append(g.c.Offsets, 0)
	}
	last := int(g.c.Offsets[n])
	if owners := len(g.c.Owners) - last; owners < 1 || owners > MaxReplicas {
		return &FieldError{"replicas", owners, fmt.Sprintf("1 to %d in slice %s", MaxReplicas, start)}
	}
	g.c.Starts = append(g.c.Starts, start)
	g.c.Offsets = append(g.c.Offsets, uint32(len(g.c.Owners)))
	return nil
}

// finish builds the assignment. A checksum that was given must be its own; line
// turns a mention's place into a line number.
func (g *gatherer) finish(checksum uint64, given bool, line func(at int) int) (*Assignment, error) {
	position := make(map[string]uint32, len(g.tasks))
	for i := range g.tasks {
		position[g.tasks[i].Name] = uint32(i)
	}
	byID := make([]uint32, len(g.first))
	for id, m := range g.first {
		pos, ok := position[m.name]
		if !ok {
			return nil, fmt.Errorf("line %d: %w", line(m.at), &FieldError{"owner", m.name, "the name of a task of the table"})
		}
		byID[id] = pos
	}
	for i, id := range g.c.Owners {
		g.c.Owners[i] = byID[id]
		if s := g.since[i]; s < g.h.Horizon || s > g.h.Generation {
			return nil, &FieldError{"since of owner " + g.first[id].name, int64(s), fmt.Sprintf("the horizon, %d, to the generation, %d", g.h.Horizon, g.h.Generation)}
		}
	}
	if g.c.setSince(g.h.Horizon, g.since) != g.h.Horizon {
		return nil, &FieldError{"since", "too many", fmt.Sprintf("at most %d different generations after the horizon", maxSinceDistinct)}
	}
	a, err := New(g.h, g.tasks, g.c)
	if err != nil {
		return nil, err
	}
	if given && checksum != a.Checksum() {
		return nil, &FieldError{"checksum", hex16(checksum), hex16(a.Checksum()) + ", that of the content: it was changed or damaged"}
	}
	return a, nil
}
