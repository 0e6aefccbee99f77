package maintenance

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// Fault is a record that is wrong, or missing.
type Fault struct {
	Key     string `json:"key"`
	Problem string `json:"problem"`
	// Mend says what Repair does about it, empty when it can do nothing.
	Mend string `json:"mend,omitempty"`

	groups [][]Update
}

// Report is what Check finds.
type Report struct {
	Store    string  `json:"store"`
	StoreID  string  `json:"store_id,omitempty"`
	Revision int64   `json:"revision"`
	Records  int     `json:"records"`
	Jobs     int     `json:"jobs"`
	Deleted  int     `json:"deleted_jobs"`
	Faults   []Fault `json:"faults"`
	// Foreign are keys that are none of a store's. They are left alone.
	Foreign []string `json:"foreign_keys,omitempty"`
	// Registered are the assigners that there are entries of.
	Registered []string `json:"registered_assigners,omitempty"`
	Sessions   int      `json:"lease_sessions"`
}

// Options are what Check may use beside the records.
type Options struct {
	// Lease checks a record below lease/. Nil checks none.
	Lease func(key string, value []byte) error
	// Config gives a job's config in place of one that is corrupt, and says where it is
	// from. orders are what the job's history has about its orders, oldest first. Nil
	// gives none, and so does an error, which says why.
	Config func(job string, orders []store.Entry) (c assignment.JobConfig, from string, err error)
	// DropOverrides allows to mend corrupt overrides by leaving all of the job's out.
	DropOverrides bool
}

// jobRecords are the records of one job.
type jobRecords struct {
	config, head, overrides, gone *Record
	names                         *Record
	generations, chunks           []Record
	attempts                      []string // prefixes of the chunks of writes under way
	entries, orders               []Record // history
}

type checker struct {
	l      record.Layout
	s      *Snapshot
	o      Options
	r      *Report
	jobs   map[string]*jobRecords
	source record.Source
}

// Check examines all records. It changes nothing.
func Check(ctx context.Context, where string, s *Snapshot, o Options) (*Report, error) {
	c := &checker{s: s, o: o, r: &Report{Store: where, Revision: s.Revision, Records: len(s.Records), Faults: []Fault{}, Sessions: len(s.Sessions)}, jobs: map[string]*jobRecords{}, source: s}
	if s.Damage != nil {
		c.fault(Fault{Key: "(files)", Problem: s.Damage.Error()})
	}
	c.identity()
	for i := range s.Records {
		c.sort(&s.Records[i])
	}
	names := make([]string, 0, len(c.jobs))
	for name := range c.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.job(ctx, name, c.jobs[name])
	}
	slices.SortStableFunc(c.r.Faults, func(a, b Fault) int { return strings.Compare(a.Key, b.Key) })
	return c.r, nil
}

func (c *checker) fault(f Fault) { c.r.Faults = append(c.r.Faults, f) }

// identity reads the store's id, without which no assignment can be checked.
func (c *checker) identity() {
	value := c.s.get(c.l.ID())
	if value == nil {
		if len(c.s.Records) > 0 {
			c.fault(Fault{Key: c.l.ID(), Problem: "missing: the store has no identity"})
		}
		return
	}
	id, err := c.l.DecodeIdentity(value)
	if err != nil {
		c.fault(Fault{Key: c.l.ID(), Problem: err.Error()})
		return
	}
	c.l.StoreID, c.r.StoreID = id.StoreID, fmt.Sprintf("%016x", id.StoreID)
}

// remove is the mend of a record that nothing needs.
func remove(kv *Record, problem, mend string) Fault {
	return Fault{Key: kv.Key, Problem: problem, Mend: mend, groups: [][]Update{{{Key: kv.Key, Was: kv.Value}}}}
}

// sort puts a record where it belongs, and checks those that are of no job.
func (c *checker) sort(kv *Record) {
	kind, rest, _ := strings.Cut(kv.Key, "/")
	name, part, _ := strings.Cut(rest, "/")
	job := func() *jobRecords {
		j := c.jobs[name]
		if j == nil {
			j = &jobRecords{}
			c.jobs[name] = j
		}
		return j
	}
	valid := assignment.ValidateJobName(name) == nil
	switch {
	case kv.Key == c.l.ID():
	case kind == "lease":
		if c.o.Lease != nil {
			if err := c.o.Lease(kv.Key, kv.Value); err != nil {
				c.fault(Fault{Key: kv.Key, Problem: err.Error()})
			}
		}
	case kind == "lease-suspended":
	case kind == "assigners":
		candidate, err := c.l.DecodeCandidate(*kv)
		if err != nil {
			c.fault(remove(kv, err.Error(), "delete it: the assigner enters itself again"))
			return
		}
		c.r.Registered = append(c.r.Registered, candidate.ID)
	case kind == "jobs" && valid && part == "config":
		job().config = kv
	case kind == "jobs" && valid && part == "head":
		job().head = kv
	case kind == "jobs" && valid && part == "overrides":
		job().overrides = kv
	case kind == "gone" && valid && part == "":
		job().gone = kv
	case kind == "names" && valid && part == "":
		job().names = kv
	case kind == "generations" && valid && isNumber(part):
		job().generations = append(job().generations, *kv)
	case kind == "chunks" && valid && strings.Count(part, "/") == 2:
		job().chunks = append(job().chunks, *kv)
	case kind == "attempts" && valid:
		if chunks, ok := c.l.MarkedChunks(kv.Key); ok {
			job().attempts = append(job().attempts, chunks)
			return
		}
		c.r.Foreign = append(c.r.Foreign, kv.Key)
	case kind == "history" && valid && strings.HasPrefix(part, "g/") && isNumber(part[2:]):
		job().entries = append(job().entries, *kv)
	case kind == "history" && valid && strings.HasPrefix(part, "o/") && isNumber(part[2:]):
		job().orders = append(job().orders, *kv)
	default:
		c.r.Foreign = append(c.r.Foreign, kv.Key)
	}
}

func isNumber(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 16 && strings.ToLower(s) == s
}

// number is that at the end of the key of a history's entry.
func number(key string) int64 {
	n, _ := strconv.ParseInt(key[len(key)-16:], 16, 64)
	return n
}

func (c *checker) job(ctx context.Context, name string, j *jobRecords) {
	var gone record.Tombstone
	if j.gone != nil {
		var err error
		if gone, err = c.l.DecodeTombstone(name, j.gone.Value); err != nil {
			gone = record.Lost(c.lastOf(name, j))
			c.fault(Fault{Key: j.gone.Key, Problem: err.Error(), Mend: "write it anew: versions go on far ahead of those that it may have had",
				groups: [][]Update{{{Key: j.gone.Key, Was: j.gone.Value, Value: c.l.EncodeTombstone(name, gone)}}}})
		}
	}
	orders := c.history(name, j)
	if j.config == nil {
		c.r.Deleted++
		c.leftovers(name, j)
		return
	}
	c.r.Jobs++
	if _, err := c.l.DecodeJob(name, j.config.Value); err != nil {
		c.fault(c.config(name, j, gone, orders, err))
	}
	if j.overrides != nil {
		if _, err := c.l.DecodeOverrides(name, j.overrides.Value); err != nil {
			c.fault(c.overrides(name, j, gone, err))
		}
	}
	if j.names != nil {
		if _, err := record.DecodeNames(c.l, name, j.names.Value); err != nil {
			c.fault(remove(j.names, err.Error(), "delete it: names of tasks are those of the identities that report them next"))
		}
	}
	if c.l.StoreID != 0 { // else no assignment can be told from another store's
		c.assignments(ctx, name, j, gone)
	}
}

// lastOf is the newest generation that any key names.
func (c *checker) lastOf(name string, j *jobRecords) (last assignment.Generation) {
	for _, kv := range j.generations {
		g, _ := c.l.GenerationOf(name, kv.Key)
		last = max(last, g)
	}
	return last
}

// history returns the entries about orders that can be read.
func (c *checker) history(name string, j *jobRecords) (orders []store.Entry) {
	for _, kv := range j.entries {
		if _, err := c.l.DecodeEntry(kv); err != nil {
			c.fault(remove(&kv, err.Error(), "delete it: the history has one entry less"))
		}
	}
	for _, kv := range j.orders {
		e, err := c.l.DecodeEntry(kv)
		if err != nil {
			c.fault(remove(&kv, err.Error(), "delete it: the history has one entry less"))
			continue
		}
		orders = append(orders, e)
	}
	return orders
}

// leftovers are records of a job that there is none of.
func (c *checker) leftovers(name string, j *jobRecords) {
	var all []Record
	for _, kv := range []*Record{j.head, j.overrides, j.names} {
		if kv != nil {
			all = append(all, *kv)
		}
	}
	all = append(append(all, j.generations...), c.unmarked(j, nil)...)
	if j.gone == nil {
		all = append(append(all, j.entries...), j.orders...)
	} else {
		all = append(all, j.entries...)
	}
	for _, kv := range all {
		c.fault(remove(&kv, "there is no job "+name, "delete it"))
	}
}

// unmarked are the chunks that belong neither to a generation that is kept nor to a
// write under way.
func (c *checker) unmarked(j *jobRecords, kept []string) (out []Record) {
	for _, kv := range j.chunks {
		prefix := kv.Key[:strings.LastIndexByte(kv.Key, '/')+1]
		if !slices.Contains(kept, prefix) && !slices.Contains(j.attempts, prefix) {
			out = append(out, kv)
		}
	}
	return out
}

// config is the fault of a config that cannot be read.
func (c *checker) config(name string, j *jobRecords, gone record.Tombstone, orders []store.Entry, why error) Fault {
	f := Fault{Key: j.config.Key, Problem: why.Error()}
	if c.o.Config == nil {
		return f
	}
	cfg, from, err := c.o.Config(name, orders)
	if err == nil {
		cfg = cfg.WithDefaults()
		err = cfg.Validate()
	}
	if err == nil && cfg.Name != name {
		err = fmt.Errorf("it is of job %s", cfg.Name)
	}
	if err != nil {
		f.Problem += "; not to be had elsewhere: " + err.Error()
		return f
	}
	stored := store.Job{Config: cfg, Version: gone.Version + record.Lost(0).Version}
	f.Mend = "write it from " + from
	if id, known := creatorOf(orders); known {
		stored.CreatedBy = id
	} else {
		f.Mend += "; the history does not go back to who created the job, so that bounds.jobs does not count it"
	}
	f.groups = [][]Update{{{Key: f.Key, Was: j.config.Value, Value: c.l.EncodeJob(stored)}}}
	return f
}

// creatorOf is the identity that has created a job, if its history goes back to that.
func creatorOf(orders []store.Entry) (id string, known bool) {
	for i := range orders {
		switch what := orders[i].Action; {
		case what == "delete job":
			id, known = "", false
		case what == "create job" || strings.HasPrefix(what, "create job:") || strings.HasPrefix(what, "create job,"):
			id, known = orders[i].Creator(), true
		}
	}
	return id, known
}

// overrides is the fault of overrides that cannot be read.
func (c *checker) overrides(name string, j *jobRecords, gone record.Tombstone, why error) Fault {
	f := Fault{Key: j.overrides.Key, Problem: why.Error() + "; the job changes no more until it is mended"}
	if !c.o.DropOverrides {
		return f
	}
	last := gone.Overrides
	for _, kv := range j.orders {
		last = max(last, number(kv.Key))
	}
	if last == 0 {
		last = record.Lost(0).Overrides
	}
	f.Mend = "leave all overrides out: freezes, pins and exclusions have to be given again"
	f.groups = [][]Update{{{Key: f.Key, Was: j.overrides.Value, Value: c.l.EncodeOverrides(name, store.Overrides{Version: last + 1})}}}
	return f
}

// assignments checks the head, and that each generation that it names can be read.
func (c *checker) assignments(ctx context.Context, name string, j *jobRecords, gone record.Tombstone) {
	var wrong []Fault
	var head *record.Head
	add := func(key string, err error) { wrong = append(wrong, Fault{Key: key, Problem: err.Error()}) }
	if j.head == nil && len(j.generations) > 0 {
		add(c.l.Head(name), fmt.Errorf("missing, and there are %d generations", len(j.generations)))
	}
	if j.head != nil {
		var err error
		if head, err = c.l.DecodeHead(name, j.head.Value); err != nil {
			add(j.head.Key, err)
		} else {
			c.segments(ctx, name, j, head, add)
		}
	}
	entries := int64(0)
	for _, kv := range j.entries {
		entries = max(entries, number(kv.Key))
	}
	if head != nil && head.Entries < entries {
		add(j.head.Key, fmt.Errorf("it counts %d entries about generations, the history has number %d", head.Entries, entries))
	}
	if head != nil {
		entries = max(entries, head.Entries)
	}
	if len(wrong) > 0 {
		for i := range c.mendAssignments(ctx, name, j, gone, entries, wrong) {
			c.fault(wrong[i])
		}
		return
	}
	var kept []string
	for _, kv := range j.generations {
		g, err := c.l.DecodeGeneration(name, kv)
		if err != nil {
			continue // the head would have faults
		}
		kept = append(kept, c.l.AttemptChunks(name, g.Generation, g.Attempt))
		if err := c.l.CheckDelta(ctx, c.source, name, g); err != nil {
			c.fault(c.delta(ctx, name, kv, g, err))
		}
	}
	for _, kv := range c.unmarked(j, kept) {
		c.fault(remove(&kv, "no generation needs it, and no write is under way that has put it", "delete it"))
	}
}

// delta is the fault of a delta that cannot be read, of a generation that is kept whole.
func (c *checker) delta(ctx context.Context, name string, kv Record, g *record.Generation, why error) Fault {
	alone := *g
	alone.Delta = record.Blob{}
	groups := [][]Update{{{Key: kv.Key, Was: kv.Value, Value: c.l.EncodeGeneration(name, &alone)}}}
	prefix := c.l.AttemptChunks(name, g.Generation, g.Attempt) + "d"
	pieces, _ := c.source.Scan(ctx, prefix, prefix+":")
	for _, p := range pieces {
		groups = append(groups, []Update{{Key: p.Key, Was: p.Value}})
	}
	return Fault{Key: kv.Key, Problem: why.Error(), Mend: "leave the delta out: the generation is there whole", groups: groups}
}

// segments reads each segment to its end, and with that all that is in it.
func (c *checker) segments(ctx context.Context, name string, j *jobRecords, head *record.Head, add func(string, error)) {
	at := 0
	for i, seg := range head.Segments {
		below := head.Generation + 1
		if i+1 < len(head.Segments) {
			below = head.Segments[i+1].First
		}
		last, n := seg.First, 0
		for ; at < len(j.generations); at++ {
			g, ok := c.l.GenerationOf(name, j.generations[at].Key)
			if ok && g >= below {
				break
			}
			if !ok || g < seg.First {
				add(j.generations[at].Key, fmt.Errorf("the head does not name it"))
				continue
			}
			last, n = g, n+1
		}
		if i+1 == len(head.Segments) {
			last = head.Generation
		}
		if _, err := c.l.Read(ctx, c.source, name, head, last); err != nil {
			add(c.l.Generation(name, last), fmt.Errorf("generations %d to %d cannot all be read: %w", seg.First, last, err))
		} else if n != seg.Generations {
			add(c.l.Head(name), fmt.Errorf("%d generations from %d, the head says %d", n, seg.First, seg.Generations))
		}
	}
	for ; at < len(j.generations); at++ {
		add(j.generations[at].Key, fmt.Errorf("after the newest generation that the head names, %d", head.Generation))
	}
}

// mendAssignments gives the faults of a job's generations one mend: what can be read
// stays, and the newest of that is what the job goes back to.
func (c *checker) mendAssignments(ctx context.Context, name string, j *jobRecords, gone record.Tombstone, entries int64, wrong []Fault) []Fault {
	head, kept, dropped, err := c.l.Rebuild(ctx, c.source, name, j.generations, entries)
	if err != nil {
		return wrong
	}
	put := Update{Key: c.l.Head(name)}
	if j.head != nil {
		put.Was = j.head.Value
	}
	group := []Update{put}
	mend := "the job has no assignment any more: an assigner makes a first one"
	if head != nil {
		group[0].Value = c.l.EncodeHead(name, head)
		mend = fmt.Sprintf("keep the %d generations that can be read; generation %d is the newest of them", len(kept), head.Generation)
	}
	if put.Was == nil && head == nil {
		group = nil
	}
	// Generations go on after those that are lost.
	if last := c.lastOf(name, j); head == nil || last > head.Generation {
		floor := gone
		floor.Generation = max(gone.Generation, last)
		u := Update{Key: c.l.Gone(name), Value: c.l.EncodeTombstone(name, floor)}
		if j.gone != nil {
			u.Was = j.gone.Value
		}
		if _, err := c.l.DecodeTombstone(name, u.Was); u.Was == nil || err == nil {
			group = append(group, u)
		}
	}
	var prefixes []string
	for _, g := range kept {
		prefixes = append(prefixes, c.l.AttemptChunks(name, g.Generation, g.Attempt))
	}
	groups := [][]Update{group}
	for _, kv := range append(dropped, c.unmarked(j, prefixes)...) {
		// What the new head does not name is deleted after it is in place.
		if n := len(groups); n == 1 || len(groups[n-1]) == MaxGroup {
			groups = append(groups, nil)
		}
		n := len(groups) - 1
		groups[n] = append(groups[n], Update{Key: kv.Key, Was: kv.Value})
	}
	for i := range wrong {
		if wrong[i].Mend = mend; i == 0 {
			wrong[i].groups = groups
		}
	}
	return wrong
}

// Repair mends the faults that can be mended, and returns how many those are. Each
// fault is mended as a whole or, with more than MaxGroup records, from what matters to
// what nothing needs any more; so one that was broken off is run again. done, if it is
// not nil, is told of each.
func Repair(ctx context.Context, m Medium, r *Report, done func(Fault)) (n int, err error) {
	for _, f := range r.Faults {
		if f.Mend == "" {
			continue
		}
		for _, g := range f.groups {
			if len(g) == 0 {
				continue
			}
			if err := m.Apply(ctx, g); err != nil {
				return n, fmt.Errorf("mend %s: %w", f.Key, err)
			}
		}
		if n++; done != nil {
			done(f)
		}
	}
	return n, nil
}

// Sealed reports whether a value is a whole record of its key. Its error matches
// store.ErrCorrupt.
func Sealed(key string, value []byte) error {
	_, err := record.Layout{}.Open(key, value)
	return err
}
