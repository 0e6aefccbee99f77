package membership

import (
	"slices"
	"time"
)

// judge declares dead whose silence has lasted for the heartbeat timeout, unless
// so many are silent at once that the fault is likely our own.
func (f *freeze) judge() {
	if f.frozen {
		f.thaw()
		return
	}
	if !f.attached.hears() {
		return
	}
	var overdue []*task
	live, quiet := 0, 0
	for _, k := range f.roster.tasks {
		if !k.alive() {
			continue
		}
		s := f.attached.silence(k)
		if s >= timeouts*f.cfg.HeartbeatTimeout {
			overdue = append(overdue, k)
		}
		if k.missed {
			continue // since a freeze that has ended: it calls for no other one
		}
		live++
		if s >= f.cfg.HeartbeatTimeout/2 {
			quiet++
		}
	}
	cfg := f.cfg.Freeze
	for len(f.deaths) > 0 && f.deaths[0] < f.now-cfg.Window {
		f.deaths = f.deaths[1:]
	}
	if len(overdue) == 0 {
		return
	}
	all, vanished := live+len(f.deaths), quiet+len(f.deaths)
	if f.now >= f.trusts && all >= cfg.MinTasks && float64(vanished) > cfg.Share*float64(all) {
		f.frozen, f.frozenAt = true, f.now
		f.roster.say(nil, Frozen, "%d of %d tasks fell silent within %s: none is declared dead for %s, or until they return", vanished, all, cfg.Window, cfg.For)
		return
	}
	for _, k := range overdue {
		if !k.missed {
			f.deaths = append(f.deaths, f.now)
		}
		f.roster.die(k, f.attached.silence(k))
	}
}

// hears reports whether silence is that of tasks: a Distributor would carry their
// reports.
func (d *attached) hears() bool { return d.armed && len(d.all) > 0 }

// missing reports whether a task of a frozen job was not heard since, or is silent once
// more. A timer that restarts, as with a Distributor, is no sign of life.
func (f *freeze) missing(k *task) bool {
	return k.report <= f.frozenAt || f.attached.silence(k) >= f.cfg.HeartbeatTimeout/2
}

// thaw ends a freeze when the tasks that vanished have returned, or after a time, whether
// anything is heard or not.
func (f *freeze) thaw() {
	cfg := f.cfg.Freeze
	live, quiet := 0, 0
	for _, k := range f.roster.tasks {
		if k.alive() {
			live++
			if f.missing(k) {
				quiet++
			}
		}
	}
	switch {
	case f.attached.hears() && float64(quiet) <= cfg.Share/2*float64(live):
		f.frozen = false
		f.roster.say(nil, Thawed, "%d of %d tasks are heard again", live-quiet, live)
	case f.now >= f.frozenAt+cfg.For && !neverThaws:
		f.roster.say(nil, Thawed, "after %s: %d tasks are still silent, and taken for dead", cfg.For, quiet)
		f.giveUp()
	}
}

// giveUp ends a freeze although tasks are missing. Those that are known to be silent for
// long enough are dead; the others will be, or will be heard. Neither calls for another
// freeze.
func (f *freeze) giveUp() {
	f.frozen, f.deaths = false, nil
	for _, k := range f.roster.tasks {
		if !k.alive() || !f.missing(k) {
			continue
		}
		k.missed = true
		if f.attached.hears() && f.attached.silence(k) >= f.cfg.HeartbeatTimeout {
			f.roster.die(k, f.attached.silence(k))
		}
	}
}

func (r *roster) die(k *task, silence time.Duration) {
	k.fate, k.fateAt = silent, r.now
	r.say(k, Dead, "no report for %s, though one could have come", silence.Round(time.Millisecond))
	k.carriers = nil
	if !k.drains() {
		r.failed(k)
	}
	r.settle(k)
}

// silence is for how long a task is known to have said nothing: as long as the
// Distributor that carried its newest report was heard without one, or else some
// Distributor that could have. One that a task has left may take a stream for alive
// that is dead. A task that has lost its Distributor first has to find one that
// speaks.
func (d *attached) silence(k *task) (longest time.Duration) {
	from := max(k.heard, d.watch)
	last := slices.Contains(k.carriers, k.via)
	finding := time.Duration(0)
	if len(k.carriers) == 0 && !k.gone {
		finding = d.cfg.regroupsFor()
	}
	for _, s := range d.all {
		if last && s.id != k.via {
			continue
		}
		if len(k.carriers) == 0 || slices.Contains(k.carriers, s.id) {
			longest = max(longest, d.witness(s)-max(from, s.speaks+finding))
		}
	}
	return longest
}

// witness is until when a Distributor is known to have been able to speak. One that has
// not said which tasks it carries may be reporting to another assigner; but if it had
// before Resume or Away, and has not for long, it has nothing to say.
func (d *attached) witness(s *distributor) time.Duration {
	if !s.complete && (!s.said || d.now < s.since+d.cfg.SnapshotWait) {
		return 0
	}
	return max(s.heard, d.now-d.cfg.Vouch)
}

// Frozen reports whether no task is declared dead just now because so many fell silent at
// once, and since when.
func (t *Table) Frozen() (since time.Duration, frozen bool) {
	if !t.freeze.frozen {
		return 0, false
	}
	return t.now - t.freeze.frozenAt, true
}

// Listening says why no task could be declared dead just now for want of evidence, or
// returns "".
func (t *Table) Listening() string {
	switch {
	case len(t.attached.all) == 0:
		return "no Distributor is connected"
	case !t.attached.armed:
		return "starting: not every Distributor has told yet which tasks it carries"
	}
	return ""
}

// Starting is for how long the table has waited for Distributors to tell which tasks
// they carry, or 0 when it does not wait for that.
func (t *Table) Starting() time.Duration {
	if len(t.attached.all) == 0 || t.attached.armed {
		return 0
	}
	return t.now - (t.attached.settled - t.cfg.Settle)
}
