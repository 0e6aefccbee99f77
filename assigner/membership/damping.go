package membership

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// record is how often a name has failed of late.
type record struct {
	penalty float64 // at the time at
	at      time.Duration
	damped  bool
}

func (r *record) now(now time.Duration, d *assignment.DampingConfig) float64 {
	return r.penalty * math.Exp2(-float64(now-r.at)/float64(d.HalfLife))
}

// left is how long it takes until the penalty has fallen to the one for reuse.
func (r *record) left(now time.Duration, d *assignment.DampingConfig) time.Duration {
	p := r.now(now, d)
	if p <= d.Reuse {
		return 0
	}
	return time.Duration(math.Log2(p/d.Reuse) * float64(d.HalfLife))
}

// failed adds to the penalty of a task that has ended without having drained.
func (r *roster) failed(k *task) {
	d := &r.cfg.Damping
	k.record.penalty, k.record.at = min(k.record.now(r.now, d)+1, d.Most), r.now
}

// damp makes a task wait that has just come back, if it has failed too often and not too
// many others wait.
func (r *roster) damp(k *task) {
	d := &r.cfg.Damping
	// A little below: the penalty has decayed since the failure that counts.
	if !k.record.damped && k.record.now(r.now, d) < d.Suppress*.9 {
		return
	}
	alive, damped, running := 1, 1, 0 // with this one
	for _, o := range r.tasks {
		if o == k || !o.alive() {
			continue
		}
		alive++
		if o.record.damped {
			damped++
		}
		if o.shown() == assignment.TaskRunning {
			running++
		}
	}
	// One may wait in the smallest job, too, if another serves.
	before := k.record.damped
	k.record.damped = running > 0 && d.Share > 0 && (damped == 1 || float64(damped) <= d.Share*float64(alive))
	if k.record.damped && !before {
		r.say(k, Damped, "it has failed again and again: it owns nothing for %s", k.record.left(r.now, d).Round(time.Second))
	}
}

// undamp lets a task own slices again when it has been up for long enough.
func (r *roster) undamp(k *task) {
	if !k.record.damped || k.record.now(r.now, &r.cfg.Damping) > r.cfg.Damping.Reuse {
		return
	}
	r.release(k, "it has stayed up")
}

func (r *roster) release(k *task, why string) {
	k.record.damped = false
	r.begin(k)
	if k.alive() {
		r.say(k, Undamped, "%s", why)
	}
}

// undampIfAlone lets damped tasks own slices all the same when no other task may, because
// the others have died or drain: better one that fails often than none.
func (r *roster) undampIfAlone() {
	if r.anyRunning() {
		return
	}
	for _, k := range r.tasks {
		if k.alive() && !k.drains() && k.record.damped && k.state == assignment.TaskRunning {
			r.release(k, "no other task runs")
		}
	}
}

// Penalty is how often a task has failed of late, for another table to go on from.
type Penalty struct {
	Task   string
	Amount float64
	Damped bool // it owns nothing because of that
}

// worthKeeping is the penalty below which one is forgotten: two half lives after a
// failure.
const worthKeeping = .25

// Penalties are the largest, at most so many, in order of name.
func (t *Table) Penalties(most int) (all []Penalty) {
	for _, k := range t.roster.tasks {
		if p := k.record.now(t.now, &t.cfg.Damping); p >= worthKeeping || k.record.damped {
			all = append(all, Penalty{k.cur.Name, p, k.record.damped})
		}
	}
	if len(all) > most {
		slices.SortStableFunc(all, func(x, y Penalty) int { return cmp.Compare(y.Amount, x.Amount) })
		all = all[:most]
		slices.SortFunc(all, func(x, y Penalty) int { return cmp.Compare(x.Task, y.Task) })
	}
	return all
}

// Recall takes over penalties that another table had some time ago, of tasks that are
// known. What has happened here meanwhile stays.
func (t *Table) Recall(now time.Duration, before []Penalty, ago time.Duration) {
	t.tick(now)
	d := &t.cfg.Damping
	for _, p := range before {
		k := t.roster.lookup(p.Task)
		if k == nil || d.Share <= 0 {
			continue
		}
		then := record{penalty: min(p.Amount, d.Most), at: t.now - max(ago, 0)}
		amount := then.now(t.now, d)
		if amount > k.record.now(t.now, d) {
			k.record.penalty, k.record.at = then.penalty, then.at
		}
		if p.Damped && amount > d.Reuse && !k.record.damped {
			k.record.damped = true
			if k.alive() {
				t.roster.say(k, Damped, "as the assigner before had it: it owns nothing for %s", k.record.left(t.now, d).Round(time.Second))
			}
		}
	}
}
