package lease

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Guard is a job's guard record: the generation in force. The zero value is
// that of a job which has none yet.
type Guard struct {
	Generation assignment.Generation
	Open       bool // false: recalled, readers must let go
}

// Bridge is a job's bridge record: the change under way. The zero value is
// that of a job without one.
type Bridge struct {
	From, To assignment.Generation
	Open     bool // false: recalled
}

// Records are what the store keeps of a job in consistent mode, but for the
// job lease and the holders.
type Records struct {
	// Head is the newest generation that is written and may come in force.
	Head   assignment.Generation
	Guard  Guard
	Bridge Bridge
}

// Seen are the records that readers act on, as they were at one revision.
type Seen struct {
	Revision int64 // increases with every change, in the whole store
	Guard    Guard
	Bridge   Bridge
}

// Claim is what a reader may hold: the guard at a generation, or a bridge. It is
// the value of a holder key.
type Claim struct {
	From, To assignment.Generation // From 0: the guard at To
}

// GuardClaim is the guard at g.
func GuardClaim(g assignment.Generation) Claim { return Claim{To: g} }

// Claim is what a reader of this bridge holds.
func (b Bridge) Claim() Claim { return Claim{b.From, b.To} }

// Bridge reports whether the claim is for a bridge.
func (c Claim) Bridge() bool { return c.From != 0 }

func (c Claim) String() string {
	switch {
	case c == Claim{}:
		return "nothing"
	case c.Bridge():
		return fmt.Sprintf("bridge %d-%d", c.From, c.To)
	}
	return fmt.Sprintf("guard %d", c.To)
}

// Grants reports whether the claim can be acquired: the record has its value and is open.
func (s Seen) Grants(c Claim) bool {
	if c.Bridge() {
		return s.Bridge.Open && s.Bridge.Claim() == c
	}
	return c.To != 0 && s.Guard.Open && s.Guard.Generation == c.To
}

// The text of a record, for implementations that keep it in a key-value store.
const (
	open     = "open"
	recalled = "recalled"
)

func state(isOpen bool) string {
	if isOpen {
		return open
	}
	return recalled
}

// MarshalText gives "GENERATION open" or "GENERATION recalled".
func (g Guard) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d %s", g.Generation, state(g.Open)), nil
}

// UnmarshalText reads what MarshalText gives; nothing is the zero value.
func (g *Guard) UnmarshalText(text []byte) error {
	*g = Guard{}
	if len(text) == 0 {
		return nil
	}
	gens, isOpen, err := parse("guard", text, 1, true)
	if err == nil {
		*g = Guard{gens[0], isOpen}
	}
	return err
}

// MarshalText gives "FROM TO open" or "FROM TO recalled".
func (b Bridge) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d %d %s", b.From, b.To, state(b.Open)), nil
}

// UnmarshalText reads what MarshalText gives; nothing is the zero value.
func (b *Bridge) UnmarshalText(text []byte) error {
	*b = Bridge{}
	if len(text) == 0 {
		return nil
	}
	gens, isOpen, err := parse("bridge", text, 2, true)
	if err == nil {
		*b = Bridge{gens[0], gens[1], isOpen}
	}
	return err
}

// MarshalText gives "GENERATION" or "FROM TO".
func (c Claim) MarshalText() ([]byte, error) {
	if c.Bridge() {
		return fmt.Appendf(nil, "%d %d", c.From, c.To), nil
	}
	return fmt.Appendf(nil, "%d", c.To), nil
}

// UnmarshalText reads what MarshalText gives.
func (c *Claim) UnmarshalText(text []byte) error {
	gens, _, err := parse("claim", text, 1+strings.Count(string(text), " "), false)
	if err != nil {
		return err
	}
	switch len(gens) {
	case 1:
		*c = Claim{To: gens[0]}
	case 2:
		*c = Claim{gens[0], gens[1]}
	default:
		return fmt.Errorf("%w: claim %.80q: one or two generations are allowed", ErrCorrupt, text)
	}
	return nil
}

// parse reads generations, increasing, and if wanted a state.
func parse(what string, text []byte, generations int, withState bool) (gens []assignment.Generation, isOpen bool, err error) {
	fields := strings.Split(string(text[:min(len(text), 64)]), " ")
	bad := fmt.Errorf("%w: %s %.80q: allowed are generations, increasing, and open or recalled", ErrCorrupt, what, text)
	if withState {
		last := fields[len(fields)-1]
		if last != open && last != recalled {
			return nil, false, bad
		}
		isOpen = last == open
		fields = fields[:len(fields)-1]
	}
	if len(fields) != generations {
		return nil, false, bad
	}
	var previous assignment.Generation
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		g := assignment.Generation(n)
		if err != nil || g <= previous || g > assignment.MaxGeneration {
			return nil, false, bad
		}
		gens = append(gens, g)
		previous = g
	}
	return gens, isOpen, nil
}
