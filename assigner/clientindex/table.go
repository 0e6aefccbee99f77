package clientindex

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Limits on what is believed.
const (
	// MaxClients is how many clients of a job are known at once, and MaxIndex the
	// highest index that one may say it holds.
	MaxClients = 1 << 20
	MaxIndex   = MaxClients - 1
	// MaxID bounds a client's id, bytes.
	MaxID = 128
	// maxAge bounds how long a client may be said to be connected.
	maxAge = 10 * 365 * 24 * time.Hour
)

// Session is one stream of a Distributor, never the same twice.
type Session uint64

// Config has the times; zero values take defaults.
type Config struct {
	// Settle is how long a Table listens before it gives out an index, so that clients that
	// hold one can say so: from when it is to give them, or the first Distributor has
	// attached, whatever is later. Default 8 s, more than the longest pause of a client
	// that no Distributor serves, 5 s, and an attempt to connect, 2 s.
	Settle time.Duration
	// SnapshotWait is how long it waits for Distributors that are attached and
	// have not named their clients. Default 30 s.
	SnapshotWait time.Duration
	// FreeAfter is how long the index of a client that has gone stays its own.
	// Default 1 min.
	FreeAfter time.Duration
	// MaxClients bounds the clients known at once. Default and maximum MaxClients.
	MaxClients int
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, usual time.Duration) {
		if *d <= 0 {
			*d = usual
		}
	}
	set(&c.Settle, 8*time.Second)
	set(&c.SnapshotWait, 30*time.Second)
	set(&c.FreeAfter, time.Minute)
	if c.MaxClients <= 0 || c.MaxClients > MaxClients {
		c.MaxClients = MaxClients
	}
	return c
}

// Client is what a Distributor says of one client.
type Client struct {
	// ID is 1 to 128 printable ASCII characters without space; what is not is
	// ignored.
	ID string
	// Index is the one that it holds, negative if none. What is above MaxIndex
	// counts as none.
	Index int
	// Age is how long it has been connected.
	Age time.Duration
	// Disconnected says that its stream to this Distributor has ended.
	Disconnected bool
}

// Grant is an index given to a client.
type Grant struct {
	ID    string
	Index int
}

// Counters count what happened since the start.
type Counters struct {
	// Collisions are clients that had to give up an index that another held.
	Collisions uint64
	// Rejected are clients that were ignored: with an id that is not allowed, or
	// one too many.
	Rejected uint64
}

// client is one that is connected, or was less than FreeAfter ago.
type client struct {
	id       string
	index    int // -1 if none
	since    time.Duration
	carriers []carrier // in order of session
	left     uint64    // how often it has gone
}

// carrier is a Distributor by which the client is connected.
type carrier struct {
	session Session
	told    int // the index that it holds as far as that Distributor knows, -1 if none
}

// distributor is an attached Distributor.
type distributor struct {
	complete bool
	stale    bool // another assigner may have given indexes since it was complete
	clients  map[string]struct{}
	// queue are the clients that are to be told something, oldest first, and
	// queued the same as a set.
	queue  []string
	queued map[string]struct{}
}

// departure is a client that has gone at a time, and may be back, or may have gone
// once more: then nth is not what left is.
type departure struct {
	*client
	at  time.Duration
	nth uint64
}

// Table knows the clients of one job and their indexes.
type Table struct {
	cfg          Config
	now          time.Duration
	distributors map[Session]*distributor
	clients      map[string]*client
	indexes      indexes
	gone         []departure // in order of time
	mine         bool        // this assigner gives the indexes
	giving       bool        // and has settled
	began        time.Duration
	ended        time.Duration // when it was last the one
	count        Counters
}

// New makes a Table that knows no client, and gives out nothing until Prefer says so.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg.withDefaults()}
	t.reset()
	return t
}

func (t *Table) reset() {
	t.distributors, t.clients = make(map[Session]*distributor), make(map[string]*client)
	t.indexes, t.gone, t.giving = indexes{holders: make(map[int]*client)}, nil, false
}

func (t *Table) tick(now time.Duration) { t.now = max(t.now, now) }

// Prefer sets whether this assigner is the one that gives the job's indexes. What was
// heard just before it is counts. Once it is not, all is kept for FreeAfter: a
// Distributor that has taken no other assigner for preferred meanwhile does not say
// everything again. One that does so is believed, whatever was known before.
func (t *Table) Prefer(now time.Duration, mine bool) {
	t.tick(now)
	switch {
	case mine && !t.mine:
		t.began = t.now
	case !mine && t.mine:
		t.ended, t.giving = t.now, false
		for _, s := range t.distributors {
			s.stale = true
		}
	case !mine && t.ended > 0 && t.now-t.ended >= t.cfg.FreeAfter:
		t.reset()
		t.ended = 0
	}
	t.mine = mine
}

// Sessions says which Distributors are attached. Clients of one that is not any
// more are gone, unless another has them.
func (t *Table) Sessions(now time.Duration, attached []Session) {
	t.tick(now)
	if len(attached) == len(t.distributors) && !slices.ContainsFunc(attached, func(s Session) bool { return t.distributors[s] == nil }) {
		return // as before
	}
	var gone []Session // in order, so that indexes are freed in order
	for s := range t.distributors {
		if !slices.Contains(attached, s) {
			gone = append(gone, s)
		}
	}
	slices.Sort(gone)
	for _, s := range gone {
		for _, id := range slices.Sorted(maps.Keys(t.distributors[s].clients)) {
			t.drop(s, t.clients[id])
		}
		delete(t.distributors, s)
	}
	for _, s := range attached {
		t.distributor(s)
	}
}

func (t *Table) distributor(s Session) *distributor {
	if len(t.distributors) == 0 { // clients that hold an index may not have been heard for long
		t.began, t.giving = t.now, false
	}
	if t.distributors[s] == nil {
		t.distributors[s] = &distributor{clients: make(map[string]struct{}), queued: make(map[string]struct{})}
	}
	return t.distributors[s]
}

// Report takes in what a Distributor says of clients. A complete report begins
// anew: clients that are not in it, nor in one after it, are not connected there.
func (t *Table) Report(now time.Duration, s Session, complete bool, clients []Client) {
	t.tick(now)
	in := t.distributor(s)
	if complete {
		if in.stale {
			in.stale = false
			for _, id := range slices.Sorted(maps.Keys(in.clients)) {
				c := t.clients[id]
				if t.drop(s, c); len(c.carriers) == 0 {
					t.forget(c)
				}
			}
		}
		in.complete = true
		named := make(map[string]struct{}, len(clients))
		for _, c := range clients {
			named[c.ID] = struct{}{}
		}
		for _, id := range slices.Sorted(maps.Keys(in.clients)) {
			if _, ok := named[id]; !ok {
				t.drop(s, t.clients[id])
			}
		}
	}
	// Clients that hold an index come before those that are to be given one.
	var heard []*client
	for _, said := range clients {
		if c := t.hear(s, said); c != nil {
			heard = append(heard, c)
		}
	}
	for _, c := range heard {
		if c.index < 0 && len(c.carriers) > 0 {
			t.give(c)
		}
		t.tell(c)
	}
}

// hear takes in what is said of one client, and returns it if it is connected.
func (t *Table) hear(s Session, said Client) *client {
	if !validID(said.ID) {
		t.count.Rejected++
		return nil
	}
	c := t.clients[said.ID]
	if said.Disconnected {
		if c != nil {
			t.drop(s, c)
		}
		return nil
	}
	if said.Index < 0 || said.Index > MaxIndex {
		said.Index = -1
	}
	since := t.now - min(max(said.Age, 0), maxAge)
	if c == nil {
		if len(t.clients) >= t.cfg.MaxClients && !t.evict() {
			t.count.Rejected++
			return nil
		}
		c = &client{id: said.ID, index: -1, since: since}
		t.clients[said.ID] = c
	}
	c.since = min(c.since, since)
	k := t.carrier(s, c)
	k.told = said.Index
	if c.index < 0 && said.Index >= 0 {
		t.claim(c, said.Index)
	}
	return c
}

// validID reports whether an id can go into a log line.
func validID(id string) bool {
	for _, b := range []byte(id) {
		if b <= ' ' || b >= 0x7f {
			return false
		}
	}
	return len(id) >= 1 && len(id) <= MaxID
}

// carrier is the client's entry for a Distributor.
func (t *Table) carrier(s Session, c *client) *carrier {
	i, ok := slices.BinarySearchFunc(c.carriers, s, func(k carrier, s Session) int { return cmp.Compare(k.session, s) })
	if !ok {
		c.carriers = slices.Insert(c.carriers, i, carrier{session: s, told: -1})
		t.distributors[s].clients[c.id] = struct{}{}
	}
	return &c.carriers[i]
}

// drop takes note that a client is not connected by a Distributor.
func (t *Table) drop(s Session, c *client) {
	n := len(c.carriers)
	c.carriers = slices.DeleteFunc(c.carriers, func(k carrier) bool { return k.session == s })
	delete(t.distributors[s].clients, c.id)
	if n > 0 && len(c.carriers) == 0 {
		c.left++
		if len(t.gone) > 2*len(t.clients) { // some come and go all the time
			t.gone = slices.DeleteFunc(t.gone, t.back)
		}
		t.gone = append(t.gone, departure{c, t.now, c.left})
	}
}

// claim is for a client that says it holds an index.
func (t *Table) claim(c *client, index int) {
	o := t.indexes.holder(index)
	if o != nil {
		t.count.Collisions++
		if !c.before(o) {
			return
		}
		o.index = -1
	}
	t.indexes.take(c, index)
	if o != nil && len(o.carriers) > 0 {
		t.give(o)
		t.tell(o)
	}
}

// before reports whether c, not o, keeps an index that both hold: one that lives, one
// that has been told of it, the one that has been connected for longer.
func (c *client) before(o *client) bool {
	first := func(is func(*client) bool) int {
		switch yes, other := is(c), is(o); {
		case yes && !other:
			return -1
		case other && !yes:
			return 1
		}
		return 0
	}
	return cmp.Or(
		first(func(x *client) bool { return len(x.carriers) > 0 }),
		first(func(x *client) bool { return x == c || x.knows() }),
		cmp.Compare(c.since, o.since), cmp.Compare(c.id, o.id)) < 0
}

// knows reports whether the client has been told its index, as far as is known here.
func (c *client) knows() bool {
	return slices.ContainsFunc(c.carriers, func(k carrier) bool { return k.told == c.index })
}

// give gives a client the smallest index that is free, if it is time.
func (t *Table) give(c *client) {
	if t.giving {
		t.indexes.take(c, t.indexes.smallest())
	}
}

// tell queues what the client does not know at each Distributor by which it is connected.
func (t *Table) tell(c *client) {
	for _, k := range c.carriers {
		s := t.distributors[k.session]
		if _, queued := s.queued[c.id]; c.index >= 0 && k.told != c.index && !queued {
			s.queued[c.id] = struct{}{}
			s.queue = append(s.queue, c.id)
		}
	}
}

// Pending reports whether a Distributor is to be told something.
func (t *Table) Pending(s Session) bool {
	return t.distributors[s] != nil && len(t.distributors[s].queue) > 0
}

// Take returns at most n of the indexes that a Distributor is to be told, and
// considers it told.
func (t *Table) Take(s Session, n int) []Grant {
	in := t.distributors[s]
	if in == nil {
		return nil
	}
	var out []Grant
	for len(in.queue) > 0 && len(out) < n {
		id := in.queue[0]
		in.queue = in.queue[1:]
		delete(in.queued, id)
		c := t.clients[id]
		if c == nil || c.index < 0 {
			continue
		}
		for i := range c.carriers {
			if k := &c.carriers[i]; k.session == s && k.told != c.index {
				k.told = c.index
				out = append(out, Grant{ID: id, Index: c.index})
			}
		}
	}
	if len(in.queue) == 0 {
		in.queue = nil
	}
	return out
}

// Stats is how many clients are connected, how many of them have an index, and
// the highest index that is held, by a client that has gone within FreeAfter,
// too; -1 if there is none.
type Stats struct {
	Clients, Indexed, Highest int
	Counters
}

// Stats returns them.
func (t *Table) Stats() Stats {
	s := Stats{Highest: t.indexes.highest(), Counters: t.count}
	for _, c := range t.clients {
		if len(c.carriers) > 0 {
			s.Clients++
			if c.index >= 0 {
				s.Indexed++
			}
		}
	}
	return s
}
