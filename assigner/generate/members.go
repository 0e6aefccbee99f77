package generate

import (
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment/store"
)

// members is which tasks there are and what they carry: the table that counts, and the
// one of before the job was handed over.
type members struct {
	*env
	table *membership.Table
	room  []membership.Report // for reports on their way into table
	meter meter
	// drains are the incarnations that operators have drained, by the names of their tasks.
	drains map[string]uint64
	// keeps says that it is stored whose the names of tasks are: a table waits for that.
	keeps bool

	kept     *membership.Table // see resume
	keptAt   time.Duration
	outdated bool          // more has happened since than kept knows
	resumed  bool          // table was kept, and nothing has been loaded since
	strayAt  time.Duration // when a report last came
}

// members is how the job's table of tasks decides.
func (s *stored) members() membership.Config {
	c := s.job.Config.WithDefaults() // of a job that is not known yet
	return membership.Config{HeartbeatTimeout: c.HeartbeatTimeout, MaxTasks: c.MaxTasks, Freeze: c.Freeze, Damping: c.Damping}
}

// each calls f with the table that counts and the one that is kept, as far as they are
// there.
func (m *members) each(f func(t *membership.Table)) {
	for _, t := range []*membership.Table{m.table, m.kept} {
		if t != nil {
			f(t)
		}
	}
}

// ensure makes a table that knows what is known now, unless there is one, and reports
// whether it did. Reports that came just before count.
func (m *members) ensure(s *stored, attached []*distributor) bool {
	if m.table != nil {
		return false
	}
	m.table = membership.New(s.members(), m.now.Mono, s.newest)
	m.expect()
	m.table.Drain(m.now.Mono, m.drains)
	for _, d := range attached {
		m.table.Attach(m.now.Mono, d.session, d.name)
	}
	return true
}

func (m *members) expect() {
	if m.keeps {
		m.table.Names.Expect()
	}
}

// keep puts the table aside when the job is handed over.
func (m *members) keep() {
	m.kept, m.keptAt, m.resumed, m.outdated = m.table, m.now.Mono, false, false
	m.table = nil
}

// resume takes up the table that was kept when the job was handed over, if it has come
// back soon: Distributors that have not learnt of it do not say once more which tasks
// they carry. If anything has been decided or said anew meanwhile, that is all that is
// taken from it.
func (m *members) resume(s *stored, attached []*distributor) {
	switch {
	case m.kept == nil || m.now.Mono-m.keptAt > straysFor:
	case m.outdated:
		m.ensure(s, attached)
		m.table.Follow(m.now.Mono, m.kept)
	default:
		m.table, m.resumed = m.kept, true
		m.table.Resume(m.now.Mono)
		m.expect()
	}
	m.kept = nil
	m.ensure(s, attached)
}

// renew gives up what was known before the job was handed over, but for which tasks the
// Distributors carry. It reports whether the table is a new one.
func (m *members) renew(s *stored, attached []*distributor) bool {
	m.outdated = true
	was := m.table
	if !m.resumed {
		return false
	}
	m.table, m.resumed = nil, false
	m.ensure(s, attached)
	m.table.Follow(m.now.Mono, was)
	return true
}

// drain sets which incarnations operators have drained.
func (m *members) drain(all []store.Drain) {
	m.drains = make(map[string]uint64, len(all))
	for _, d := range all {
		m.drains[d.Task] = d.Incarnation
	}
	m.each(func(t *membership.Table) { t.Drain(m.now.Mono, m.drains) })
}

// drop forgets all tasks, and what they carry.
func (m *members) drop() { m.table, m.meter = nil, newMeter() }

// report takes in what a Distributor says of tasks, in loads that are measured since the
// last round. It marks the reports that are Foreign.
func (m *members) report(s membership.Session, complete bool, reports []Report, since time.Duration) {
	rs := m.room[:0]
	for i := range reports {
		rs = append(rs, reports[i].Report)
	}
	m.room = rs
	if m.kept != nil {
		m.kept.Report(m.now.Mono, s, false, rs)
	}
	m.table.Report(m.now.Mono, s, complete, rs)
	for i := range reports {
		reports[i].Foreign = rs[i].Foreign
		if r := &reports[i]; r.Load != nil && !r.Disconnected && !r.Foreign {
			m.meter.add(r.Task.Name, r.Task.Incarnation, s, r.Sequence, r.Load, since)
			m.meter.watch(m.now.Mono, r.Task.Name)
		}
	}
}

// recall makes the tasks' failures from before a takeover count. Clocks that differ make
// that inexact, and no more.
func (m *members) recall(l Loaded) {
	before := make([]membership.Penalty, len(l.Penalties))
	for i, p := range l.Penalties {
		before[i] = membership.Penalty(p)
	}
	m.table.Recall(m.now.Mono, before, m.now.Wall.Sub(l.PenaltiesAt))
}

// has reports whether a task of that name is known.
func (m *members) has(task string) bool { return m.table != nil && m.table.Has(task) }

// frozen reports whether the job is frozen because too many tasks vanished at once.
func (m *members) frozen() bool {
	if m.table == nil {
		return false
	}
	_, frozen := m.table.Frozen()
	return frozen
}
