package membership

import (
	"slices"
	"time"
)

// judge declares dead whose silence has lasted for the heartbeat timeout, unless
// so many are silent at once that the fault is likely our own.
func (t *Table) judge() {
	if !t.armed || len(t.sessions) == 0 {
		return
	}
	var overdue []*task
	live, quiet := 0, 0
	for _, k := range t.tasks {
		if !k.alive() {
			continue
		}
		live++
		switch s := t.silence(k); {
		case s >= timeouts*t.cfg.HeartbeatTimeout:
			overdue = append(overdue, k)
			quiet++
		case s >= t.cfg.HeartbeatTimeout/2:
			quiet++
		}
	}
	for len(t.deaths) > 0 && t.deaths[0] < t.now-t.cfg.Freeze.Window {
		t.deaths = t.deaths[1:]
	}
	f := t.cfg.Freeze
	if t.frozen {
		t.thaw(overdue, live, quiet)
		return
	}
	if len(overdue) == 0 {
		return
	}
	all, vanished := live+len(t.deaths), quiet+len(t.deaths)
	if t.now >= t.trusts && all >= f.MinTasks && float64(vanished) > f.Share*float64(all) {
		t.frozen, t.frozenAt = true, t.now
		t.say(nil, Frozen, "%d of %d tasks fell silent within %s: nobody is declared dead for %s, or until they return", vanished, all, f.Window, f.For)
		return
	}
	for _, k := range overdue {
		t.die(k)
		t.deaths = append(t.deaths, t.now)
	}
}

// thaw ends a freeze when those who vanished have returned, or after a time.
func (t *Table) thaw(overdue []*task, live, quiet int) {
	f := t.cfg.Freeze
	switch {
	case float64(quiet) <= f.Share/2*float64(live):
		t.frozen = false
		t.say(nil, Thawed, "%d of %d tasks are heard again", live-quiet, live)
	case t.now >= t.frozenAt+f.For && !neverThaws:
		t.frozen = false
		t.say(nil, Thawed, "after %s: the %d tasks that are still silent are dead", f.For, len(overdue))
		for _, k := range overdue {
			t.die(k)
		}
		t.deaths = nil // they do not call for another freeze
	}
}

func (t *Table) die(k *task) {
	k.fate, k.fateAt = silent, t.now
	t.say(k, Dead, "no report for %s, though one could have come", t.silence(k).Round(time.Millisecond))
	k.carriers = nil
	if !k.draining {
		t.failed(k)
	}
	t.settle(k)
}

// silence is for how long a task is known to have said nothing: as long as some
// Distributor that could have carried its reports was heard without one.
func (t *Table) silence(k *task) (longest time.Duration) {
	from := max(k.heard, t.watch)
	for _, s := range t.sessions {
		if len(k.carriers) == 0 || slices.Contains(k.carriers, s.id) {
			longest = max(longest, t.witness(s)-max(from, s.speaks))
		}
	}
	return longest
}

// witness is until when a Distributor is known to have been able to speak. One
// that has not said whom it carries may be reporting to somebody else; but if it had
// before Resume, and has not for long, it has nothing to say.
func (t *Table) witness(s *session) time.Duration {
	if !s.complete && (!s.said || t.now < s.since+t.cfg.SnapshotWait) {
		return 0
	}
	return max(s.heard, t.now-t.cfg.Vouch)
}

// Frozen says whether nobody is declared dead just now because so many fell
// silent at once, and for how long that has lasted.
func (t *Table) Frozen() (since time.Duration, frozen bool) {
	if !t.frozen {
		return 0, false
	}
	return t.now - t.frozenAt, true
}

// Listening says why nobody could be declared dead just now for want of hearing,
// or returns "".
func (t *Table) Listening() string {
	switch {
	case len(t.sessions) == 0:
		return "no Distributor is connected"
	case !t.armed:
		return "waiting to hear from every Distributor"
	}
	return ""
}
