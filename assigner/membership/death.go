package membership

import (
	"slices"
	"time"
)

// judge declares dead whose silence has lasted for the heartbeat timeout, unless
// so many are silent at once that the fault is likely our own.
func (t *Table) judge() {
	if t.frozen {
		t.thaw()
		return
	}
	if !t.hears() {
		return
	}
	var overdue []*task
	live, quiet := 0, 0
	for _, k := range t.tasks {
		if !k.alive() {
			continue
		}
		s := t.silence(k)
		if s >= timeouts*t.cfg.HeartbeatTimeout {
			overdue = append(overdue, k)
		}
		if k.missed {
			continue // since a freeze that has ended: it calls for no other one
		}
		live++
		if s >= t.cfg.HeartbeatTimeout/2 {
			quiet++
		}
	}
	f := t.cfg.Freeze
	for len(t.deaths) > 0 && t.deaths[0] < t.now-f.Window {
		t.deaths = t.deaths[1:]
	}
	if len(overdue) == 0 {
		return
	}
	all, vanished := live+len(t.deaths), quiet+len(t.deaths)
	if t.now >= t.trusts && all >= f.MinTasks && float64(vanished) > f.Share*float64(all) {
		t.frozen, t.frozenAt = true, t.now
		t.say(nil, Frozen, "%d of %d tasks fell silent within %s: none is declared dead for %s, or until they return", vanished, all, f.Window, f.For)
		return
	}
	for _, k := range overdue {
		if !k.missed {
			t.deaths = append(t.deaths, t.now)
		}
		t.die(k)
	}
}

// hears reports whether silence is that of tasks: a Distributor would carry their
// reports.
func (t *Table) hears() bool { return t.armed && len(t.distributors) > 0 }

// missing reports whether a task of a frozen job was not heard since, or is silent once
// more. A timer that restarts, as with a Distributor, is no sign of life.
func (t *Table) missing(k *task) bool {
	return k.report <= t.frozenAt || t.silence(k) >= t.cfg.HeartbeatTimeout/2
}

// thaw ends a freeze when the tasks that vanished have returned, or after a time, whether
// anything is heard or not.
func (t *Table) thaw() {
	f := t.cfg.Freeze
	live, quiet := 0, 0
	for _, k := range t.tasks {
		if k.alive() {
			live++
			if t.missing(k) {
				quiet++
			}
		}
	}
	switch {
	case t.hears() && float64(quiet) <= f.Share/2*float64(live):
		t.frozen = false
		t.say(nil, Thawed, "%d of %d tasks are heard again", live-quiet, live)
	case t.now >= t.frozenAt+f.For && !neverThaws:
		t.say(nil, Thawed, "after %s: %d tasks are still silent, and taken for dead", f.For, quiet)
		t.giveUp()
	}
}

// giveUp ends a freeze although tasks are missing. Those that are known to be silent for
// long enough are dead; the others will be, or will be heard. Neither calls for another
// freeze.
func (t *Table) giveUp() {
	t.frozen, t.deaths = false, nil
	for _, k := range t.tasks {
		if !k.alive() || !t.missing(k) {
			continue
		}
		k.missed = true
		if t.hears() && t.silence(k) >= t.cfg.HeartbeatTimeout {
			t.die(k)
		}
	}
}

func (t *Table) die(k *task) {
	k.fate, k.fateAt = silent, t.now
	t.say(k, Dead, "no report for %s, though one could have come", t.silence(k).Round(time.Millisecond))
	k.carriers = nil
	if !k.drains() {
		t.failed(k)
	}
	t.settle(k)
}

// silence is for how long a task is known to have said nothing: as long as the
// Distributor that carried its newest report was heard without one, or else some
// Distributor that could have. One that a task has left may take a stream for alive
// that is dead. A task that has lost its Distributor first has to find one that
// speaks.
func (t *Table) silence(k *task) (longest time.Duration) {
	from := max(k.heard, t.watch)
	last := slices.Contains(k.carriers, k.via)
	finding := time.Duration(0)
	if len(k.carriers) == 0 && !k.gone {
		finding = t.cfg.regroupsFor()
	}
	for _, s := range t.distributors {
		if last && s.id != k.via {
			continue
		}
		if len(k.carriers) == 0 || slices.Contains(k.carriers, s.id) {
			longest = max(longest, t.witness(s)-max(from, s.speaks+finding))
		}
	}
	return longest
}

// witness is until when a Distributor is known to have been able to speak. One that has
// not said which tasks it carries may be reporting to another assigner; but if it had
// before Resume, and has not for long, it has nothing to say.
func (t *Table) witness(s *distributor) time.Duration {
	if !s.complete && (!s.said || t.now < s.since+t.cfg.SnapshotWait) {
		return 0
	}
	return max(s.heard, t.now-t.cfg.Vouch)
}

// Frozen reports whether no task is declared dead just now because so many fell silent at
// once, and since when.
func (t *Table) Frozen() (since time.Duration, frozen bool) {
	if !t.frozen {
		return 0, false
	}
	return t.now - t.frozenAt, true
}

// Listening says why no task could be declared dead just now for want of evidence, or
// returns "".
func (t *Table) Listening() string {
	switch {
	case len(t.distributors) == 0:
		return "no Distributor is connected"
	case !t.armed:
		return "starting: not every Distributor has told yet which tasks it carries"
	}
	return ""
}

// Starting is for how long the table has waited for Distributors to tell which tasks
// they carry, or 0 when it does not wait for that.
func (t *Table) Starting() time.Duration {
	if len(t.distributors) == 0 || t.armed {
		return 0
	}
	return t.now - (t.settled - t.cfg.Settle)
}
