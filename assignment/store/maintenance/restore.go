package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/internal/record"
)

// RestoreOptions say how a backup comes back.
type RestoreOptions struct {
	// StoreID of the store afterwards: random, not 0, and none that it had.
	StoreID uint64
	// Attempt is random.
	Attempt uint64
	Now     time.Time
	// Who restores, and why, for the histories.
	Who, Why string
	// Keep is Replacement.Keep.
	Keep []string
}

// Restored says what a restore does.
type Restored struct {
	Backup  Header `json:"backup"`
	StoreID string `json:"store_id"`
	// Jobs that are there afterwards.
	Jobs []RestoredJob `json:"jobs"`
	// Lost are the jobs that the store has now and the backup does not.
	Lost []string `json:"lost_jobs"`
	// Registered are the assigners that have an entry now.
	Registered []string `json:"registered_assigners"`
	// Records that the store has now.
	Replaces int `json:"replaced_records"`
	// Consistent: some job is in consistent mode, or there are leases of one.
	Consistent bool `json:"consistent"`
	// Longest is for how long a session may live that is not known of: the longest of
	// lease times and lease durations, in the backup and in the store now.
	Longest time.Duration `json:"longest_lease_ns"`

	replacement Replacement
}

// RestoredJob is one job of Restored.
type RestoredJob struct {
	Job     string `json:"job"`
	Version int64  `json:"version"`
	// From is the generation in the backup, and Generation the number under which it is
	// stored anew; both are 0 if there is none.
	From       int64 `json:"from_generation"`
	Generation int64 `json:"generation"`
	// Replaces is the newest generation that the store has now.
	Replaces int64 `json:"replaces_generation"`
}

// floor is what numbers of a job must exceed.
type floor struct {
	version, overrides int64
	generation         assignment.Generation
	known              bool // the job exists
}

// Plan works out what a restore of b onto a store puts there. The backup must be
// without faults: the error names the first one otherwise.
//
// The store gets a new id, so that each subscriber takes the first assignment that it sees
// of it whole, whatever it holds. Each job gets its newest assignment of the backup under
// a number that is newer than all before, in the backup and in the store: so generations,
// and with them fencing tokens, do not go back for a subscriber that has seen what the
// restore undoes. Since all slices count as owned from that generation on, no subscriber
// takes what it knew for what it knows. Older generations are not restored. Versions of
// configs and numbers of orders go on after those of both; a job that only the store has
// leaves a tombstone. Registrations, and leases of consistent mode and their sessions, are
// not restored.
func Plan(ctx context.Context, b *Backup, now *Snapshot, o RestoreOptions) (*Restored, error) {
	report, err := Check(ctx, "backup", b.Snapshot, Options{})
	if err != nil {
		return nil, err
	}
	if len(report.Faults) > 0 {
		f := report.Faults[0]
		return nil, fmt.Errorf("%w: %d records in it are corrupt or missing, such as %s: %s", ErrBackup, len(report.Faults), f.Key, f.Problem)
	}
	if report.StoreID == "" {
		return nil, fmt.Errorf("%w: there is no store in it", ErrBackup)
	}
	p := &planner{o: o, ctx: ctx, from: b.Snapshot, old: record.Layout{}, next: record.Layout{StoreID: o.StoreID}}
	id, err := p.old.DecodeIdentity(b.Snapshot.get(p.old.ID()))
	if err != nil {
		return nil, err
	}
	p.old.StoreID = id.StoreID
	p.out = &Restored{Backup: b.Header, StoreID: fmt.Sprintf("%016x", o.StoreID), Jobs: []RestoredJob{}, Lost: []string{}, Registered: []string{}, Longest: b.Longest, Replaces: len(now.Records)}
	p.out.replacement = Replacement{StoreID: o.StoreID, Keep: o.Keep, Sessions: now.Sessions}
	p.floors = p.floorsOf(now)
	p.look(now)
	p.look(b.Snapshot)
	if err := p.jobs(); err != nil {
		return nil, err
	}
	slices.SortFunc(p.out.replacement.Records, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return p.out, nil
}

type planner struct {
	o         RestoreOptions
	ctx       context.Context
	from      *Snapshot
	old, next record.Layout
	floors    map[string]floor
	out       *Restored
}

// look finds which assigners are there, and how long leases may last.
func (p *planner) look(s *Snapshot) {
	for _, ttl := range s.Sessions {
		p.out.Longest = max(p.out.Longest, ttl)
	}
	for _, kv := range s.Records {
		if strings.HasPrefix(kv.Key, "lease/") {
			p.out.Consistent = p.out.Consistent || strings.Count(kv.Key, "/") > 1
			continue
		}
		if id, ok := strings.CutPrefix(kv.Key, p.old.Assigners()); ok && s != p.from {
			p.out.Registered = append(p.out.Registered, id)
		}
		name, part, ok := p.old.JobOf(kv.Key)
		if !ok || part != record.PartConfig {
			continue
		}
		if j, err := p.old.DecodeJob(name, kv.Value); err == nil {
			p.out.Longest = max(p.out.Longest, j.Config.LeaseDuration)
			p.out.Consistent = p.out.Consistent || j.Config.Mode == assignment.Consistent
		}
	}
}

// floorsOf is what is known of the jobs of a store. What cannot be read counts as far
// ahead.
func (p *planner) floorsOf(s *Snapshot) map[string]floor {
	l, all := p.old, map[string]floor{}
	lost := record.Lost(0)
	for _, kv := range s.Records {
		kind, rest, _ := strings.Cut(kv.Key, "/")
		name, part, _ := strings.Cut(rest, "/")
		if assignment.ValidateJobName(name) != nil {
			continue
		}
		f := all[name]
		switch {
		case kind == "jobs" && part == "config":
			f.known = true
			j, err := l.DecodeJob(name, kv.Value)
			if err != nil {
				j.Version = lost.Version
			}
			f.version = max(f.version, j.Version)
		case kind == "jobs" && part == "overrides":
			c, err := l.DecodeOverrides(name, kv.Value)
			if err != nil {
				c.Version = lost.Overrides
			}
			f.overrides = max(f.overrides, c.Version)
		case kind == "jobs" && part == "head":
			if h, err := l.DecodeHead(name, kv.Value); err == nil {
				f.generation = max(f.generation, h.Generation)
			}
		case kind == "generations":
			if g, ok := l.GenerationOf(name, kv.Key); ok {
				f.generation = max(f.generation, g)
			}
		case kind == "gone" && part == "":
			t, err := l.DecodeTombstone(name, kv.Value)
			if err != nil {
				t = lost
			}
			f.version, f.overrides, f.generation = max(f.version, t.Version), max(f.overrides, t.Overrides), max(f.generation, t.Generation)
		default:
			continue
		}
		all[name] = f
	}
	return all
}

func (p *planner) put(kvs ...Record) {
	p.out.replacement.Records = append(p.out.replacement.Records, kvs...)
}

func (p *planner) jobs() error {
	there := p.floorsOf(p.from)
	names := make([]string, 0, len(there)+len(p.floors))
	for name := range there {
		names = append(names, name)
	}
	for name, f := range p.floors {
		if _, ok := there[name]; !ok {
			names = append(names, name)
		}
		if f.known && !there[name].known {
			p.out.Lost = append(p.out.Lost, name)
		}
	}
	slices.Sort(names)
	slices.Sort(p.out.Lost)
	for _, name := range names {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		now, was := p.floors[name], there[name]
		f := floor{max(now.version, was.version), max(now.overrides, was.overrides), max(now.generation, was.generation), was.known}
		// The history comes as it is; its entries bear the numbers that they had.
		history, _ := p.from.Scan(p.ctx, p.old.History(name), record.After(p.old.History(name)))
		p.put(history...)
		if !was.known {
			p.tombstone(name, f)
			continue
		}
		if err := p.job(name, f, now.generation); err != nil {
			return fmt.Errorf("job %s: %w", name, err)
		}
	}
	return nil
}

func (p *planner) tombstone(name string, f floor) {
	p.put(Record{Key: p.next.Gone(name), Value: p.next.EncodeTombstone(name, record.Tombstone{Version: f.version, Generation: f.generation, Overrides: f.overrides})})
}

func (p *planner) job(name string, f floor, replaces assignment.Generation) error {
	stored, err := p.old.DecodeJob(name, p.from.get(p.old.Config(name)))
	if err != nil {
		return err
	}
	stored.Version = f.version + 1
	p.put(Record{Key: p.next.Config(name), Value: p.next.EncodeJob(stored)})
	p.tombstone(name, f)

	stamp := store.Stamp{Who: p.o.Who, When: p.o.Now.UTC().Truncate(time.Millisecond), Why: p.o.Why}
	var overrides store.Overrides
	if value := p.from.get(p.old.Overrides(name)); value != nil {
		if overrides, err = p.old.DecodeOverrides(name, value); err != nil {
			return err
		}
	}
	overrides = overrides.Clone()
	overrides.Rollback = nil // the generation that it asks for is not restored
	overrides.Version = f.overrides + 1
	order := store.Entry{Order: overrides.Version, Action: "restore the store from its backup of " + p.backupTime(), Assigner: "slicerctl", Stamp: stamp}
	if err := record.CheckOrder(overrides, order); err != nil {
		return err
	}
	p.put(p.next.Order(name, overrides, order, stored.Config.History).Records...)

	// Whose the names of tasks were when the backup was made is left out: it would keep out
	// tasks that have taken the names since.
	done := RestoredJob{Job: name, Version: stored.Version, Replaces: int64(replaces)}
	if value := p.from.get(p.old.Head(name)); value != nil {
		if err := p.assignment(name, value, f, stored.Config, overrides, order, &done); err != nil {
			return err
		}
	}
	p.out.Jobs = append(p.out.Jobs, done)
	return nil
}

func (p *planner) backupTime() string {
	return p.out.Backup.Created.UTC().Format(time.RFC3339)
}

// assignment stores the newest one anew, as the first of the store.
func (p *planner) assignment(name string, value []byte, f floor, cfg assignment.JobConfig, overrides store.Overrides, order store.Entry, done *RestoredJob) error {
	head, err := p.old.DecodeHead(name, value)
	if err != nil {
		return err
	}
	a, err := p.old.Read(p.ctx, p.from, name, head, head.Generation)
	if err != nil {
		return err
	}
	g, err := assignment.NextGeneration(max(f.generation, head.Generation), 0, p.o.Now)
	if err != nil && !errors.Is(err, assignment.ErrAhead) { // whose number is good all the same
		return err
	}
	var tasks []assignment.Task
	for _, t := range a.Tasks() {
		tasks = append(tasks, t)
	}
	c := a.Columns()
	next, err := assignment.Successor(nil, assignment.Header{Job: name, StoreID: p.o.StoreID, Generation: g}, tasks,
		assignment.Placement{Starts: slices.Clone(c.Starts), Offsets: slices.Clone(c.Offsets), Owners: slices.Clone(c.Owners)})
	if err != nil {
		return err
	}
	change, err := p.next.Plan(nil, nil, next, 2, p.o.Attempt)
	if err != nil {
		return err
	}
	change.Head.Entries = head.Entries
	entry := store.Entry{Order: order.Order, Generation: g, Assigner: order.Assigner, Stamp: order.Stamp}
	entry.Why = cmp.Or(entry.Why, "restored from a backup")
	more := p.next.Attach(name, change, store.Commit{Next: next, Entry: &entry, Keep: cfg.History}, overrides)
	h, generation := p.next.Records(name, change)
	p.put(append(append(more.Records, change.Pieces...), h, generation)...)
	done.From, done.Generation = int64(head.Generation), int64(g)
	return nil
}

// Apply carries a restore out. since is the snapshot that it was planned on.
func (r *Restored) Apply(ctx context.Context, m Medium, since *Snapshot) error {
	return m.Replace(ctx, since, r.replacement)
}
