package clientindex

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"
)

// world is what really goes on: clients, Distributors, and one assigner after the
// other. Two tables hear of it, which have to agree in all they say.
type world struct {
	*rapid.T
	tables  [2]*Table
	cfg     Config
	now     time.Duration
	next    Session
	dists   []*dist
	clients []*person
	// begun is when the assigner was preferred, or a Distributor attached as none was.
	begun    time.Duration
	attached bool // one is
}

// dist is a Distributor, with a session if it is attached.
type dist struct {
	session Session
	silent  bool // it has not named its clients
}

// person is a client as it sees itself.
type person struct {
	id     string
	held   int // index, -1 if none
	on     *dist
	since  time.Duration
	leftAt time.Duration
	// collided says that another has had the index that it holds.
	collided bool
}

func (w *world) both(f func(t *Table)) {
	for _, t := range w.tables {
		f(t)
	}
}

func (w *world) takeover() {
	w.tables = [2]*Table{New(w.cfg), New(w.cfg)}
	w.begun = w.now
	for _, d := range w.dists {
		d.silent = true
		if d.session != 0 && rapid.Bool().Draw(w.T, "early") {
			w.snapshot(d) // it has heard of the preference before
		}
	}
	w.both(func(t *Table) { t.Prefer(w.now, true) })
	w.sync()
	for _, d := range w.dists {
		if d.session != 0 && rapid.IntRange(0, 3).Draw(w.T, "snapshot") > 0 {
			w.snapshot(d)
		}
	}
}

func (w *world) sync() {
	var on []Session
	before := w.attached
	for _, d := range w.dists {
		if d.session != 0 {
			on = append(on, d.session)
		}
	}
	if w.attached = len(on) > 0; w.attached && !before {
		w.begun = w.now
	}
	w.both(func(t *Table) { t.Sessions(w.now, on) })
}

// snapshot names a Distributor's clients, in messages of two, those that hold an index
// first.
func (w *world) snapshot(d *dist) {
	d.silent = false
	var all []Client
	for _, c := range w.clients {
		if c.on == d {
			all = append(all, w.said(c))
		}
	}
	slices.SortStableFunc(all, func(c, o Client) int { return cmp.Compare(min(o.Index, 0), min(c.Index, 0)) })
	for first := true; first || len(all) > 0; first = false {
		n := min(2, len(all))
		w.both(func(t *Table) { t.Report(w.now, d.session, first, all[:n]) })
		all = all[n:]
	}
}

func (w *world) said(c *person) Client {
	return Client{ID: c.id, Index: c.held, Age: w.now - c.since}
}

func (w *world) tell(d *dist, c Client) {
	if d.session != 0 && !d.silent {
		w.both(func(t *Table) { t.Report(w.now, d.session, false, []Client{c}) })
	}
}

func (w *world) connect(c *person) {
	c.on, c.since = rapid.SampledFrom(w.dists).Draw(w.T, "distributor"), w.now
	w.tell(c.on, w.said(c))
}

func (w *world) disconnect(c *person) {
	d := c.on
	c.on, c.leftAt = nil, w.now
	w.tell(d, Client{ID: c.id, Disconnected: true})
}

func (w *world) pass(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now = min(end, w.now+500*time.Millisecond)
		w.both(func(t *Table) { t.Advance(w.now) })
		w.deliver()
		w.check()
	}
}

// deliver carries what there is to say, or loses it with the session.
func (w *world) deliver() {
	w.excuse()
	for _, d := range w.dists {
		for d.session != 0 && w.tables[0].Pending(d.session) {
			got := w.tables[0].Take(d.session, 2)
			if other := w.tables[1].Take(d.session, 2); !slices.Equal(got, other) {
				w.Fatalf("one table says %v, the other %v", got, other)
			}
			for _, g := range got {
				w.granted(d, g)
			}
		}
	}
}

func (w *world) granted(d *dist, g Grant) {
	i := slices.IndexFunc(w.clients, func(c *person) bool { return c.id == g.ID })
	if i < 0 {
		w.Fatalf("index for %s, which no Distributor has named", g.ID)
	}
	c := w.clients[i]
	if c.on != d {
		w.Fatalf("%s is told by a Distributor that it is not connected to", c.id)
	}
	if c.held >= 0 && !c.collided {
		w.Fatalf("%s had %d, no other had, and now it gets %d", c.id, c.held, g.Index)
	}
	// It was the smallest free one, so that those below it were taken: by others
	// who live, have lived within the minute, or say that they hold it.
	others := 0
	for _, o := range w.clients {
		if o != c && (o.on != nil || w.now-o.leftAt <= w.cfg.withDefaults().FreeAfter) {
			others++
		}
	}
	if g.Index > others {
		w.Fatalf("%s gets %d, but there are only %d others", c.id, g.Index, others)
	}
	c.held, c.collided = g.Index, false
}

// excuse notes which clients hold what another has, or has had within the minute.
func (w *world) excuse() {
	by := make(map[int][]*person)
	for _, c := range w.clients {
		if c.held >= 0 {
			by[c.held] = append(by[c.held], c)
		}
	}
	for _, cs := range by {
		for _, c := range cs {
			c.collided = c.collided || len(cs) > 1
		}
	}
}

// settled reports whether the table has heard of all clients.
func (w *world) settled() bool {
	for _, d := range w.dists {
		if d.session == 0 || d.silent {
			return false
		}
	}
	return w.now-w.begun >= w.cfg.withDefaults().SnapshotWait
}

func (w *world) check() {
	for _, t := range w.tables {
		if len(t.gone) > 2*len(w.clients)+1 {
			w.Fatalf("%d departures are kept of %d clients", len(t.gone), len(w.clients))
		}
	}
	if !w.settled() {
		return
	}
	holder := make(map[int]string)
	for _, c := range w.clients {
		switch {
		case c.on == nil:
		case c.held < 0:
			w.Fatalf("%s has no index", c.id)
		case holder[c.held] != "":
			w.Fatalf("%s and %s hold %d", c.id, holder[c.held], c.held)
		default:
			holder[c.held] = c.id
		}
	}
}

func (w *world) act() {
	pick := func() *person { return rapid.SampledFrom(w.clients).Draw(w.T, "client") }
	switch rapid.IntRange(0, 9).Draw(w.T, "act") {
	case 0, 1:
		w.clients = append(w.clients, &person{id: fmt.Sprintf("c%d", len(w.clients)), held: -1})
		w.connect(w.clients[len(w.clients)-1])
	case 2:
		if c := pick(); c.on != nil {
			w.disconnect(c)
		}
	case 3:
		if c := pick(); c.on == nil {
			w.connect(c)
		}
	case 4: // to another Distributor, by way of both
		if c := pick(); c.on != nil {
			from := c.on
			w.connect(c)
			if c.on != from {
				w.tell(from, Client{ID: c.id, Disconnected: true})
			}
		}
	case 5: // a Distributor loses the assigner, or comes back
		d := rapid.SampledFrom(w.dists).Draw(w.T, "distributor")
		if d.session != 0 {
			d.session = 0
			w.sync()
			return
		}
		w.next++
		d.session, d.silent = w.next, true
		w.sync()
		if rapid.Bool().Draw(w.T, "at once") {
			w.snapshot(d)
		}
	case 6:
		if d := rapid.SampledFrom(w.dists).Draw(w.T, "distributor"); d.session != 0 {
			w.snapshot(d)
		}
	case 7:
		switch rapid.IntRange(0, 3).Draw(w.T, "takeover") {
		case 0:
			w.takeover()
		case 1: // the preference flaps, and no Distributor notices
			w.both(func(t *Table) {
				t.Prefer(w.now, false)
				t.Prefer(w.now, true)
			})
			w.begun = w.now
		}
	case 8:
		w.pass(time.Duration(rapid.IntRange(1, 90).Draw(w.T, "long")) * time.Second)
	default:
		w.pass(time.Duration(rapid.IntRange(1, 3000).Draw(w.T, "ms")) * time.Millisecond)
	}
}

// TestWorld: whatever happens to clients, Distributors and assigners, once all have been
// heard no two clients hold one index, none is without, a new one is the smallest there
// is, and none changes but for a collision.
func TestWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t}
		for range rapid.IntRange(1, 3).Draw(t, "distributors") {
			w.next++
			w.dists = append(w.dists, &dist{session: w.next})
		}
		w.clients = []*person{{id: "c0", held: -1}}
		w.takeover()
		w.connect(w.clients[0])
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.act()
			w.deliver()
			w.check()
		}
		// In the end all is well.
		for _, d := range w.dists {
			if d.session == 0 {
				w.next++
				d.session = w.next
			}
		}
		w.sync()
		for _, d := range w.dists {
			w.snapshot(d)
		}
		w.deliver()
		w.pass(31 * time.Second)
		if !w.settled() {
			t.Fatal("never settled")
		}
	})
}
