package membership

import (
	"fmt"
	"math"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Damping says how long a task that keeps failing has to stay up before it may
// own slices again. Each time that it dies, or restarts without having drained,
// adds 1 to its penalty, which halves every HalfLife. It is the scheme by which
// routers damp flapping routes (RFC 2439). A drained restart costs nothing.
type Damping struct {
	// HalfLife of the penalty. Default 1 min.
	HalfLife time.Duration
	// Suppress is the penalty from which on a task owns nothing, above 1. Default 3:
	// the third failure within about half a minute, the fourth within two.
	Suppress float64
	// Reuse is the penalty below which it may own slices again, below Suppress.
	// Default 1.5.
	Reuse float64
	// Most bounds the penalty, and so how long a task waits. Default 6: two minutes
	// with the other defaults.
	Most float64
	// Share of the job's living tasks that may be damped at once, 0 to 1: when many
	// fail the fault is not theirs, and somebody has to serve. Default .25; below 0
	// damps nobody.
	Share float64
}

func (d Damping) withDefaults() Damping {
	set := func(f *float64, v float64) {
		if *f == 0 {
			*f = v
		}
	}
	if d.HalfLife == 0 {
		d.HalfLife = time.Minute
	}
	set(&d.Suppress, 3)
	set(&d.Reuse, 1.5)
	set(&d.Most, 6)
	set(&d.Share, .25)
	return d
}

// Validate names the first field that is not allowed.
func (d Damping) Validate() error {
	d = d.withDefaults()
	switch {
	case d.HalfLife < time.Second:
		return fmt.Errorf("damping half life %s is not allowed: want at least 1s, or 0 for the default", d.HalfLife)
	case !(d.Suppress > 1) || math.IsInf(d.Suppress, 0):
		return fmt.Errorf("damping suppress %v is not allowed: want a penalty above 1, or 0 for the default", d.Suppress)
	case !(d.Reuse > 0 && d.Reuse < d.Suppress):
		return fmt.Errorf("damping reuse %v is not allowed: want a penalty above 0 and below suppress (%v)", d.Reuse, d.Suppress)
	case !(d.Most >= d.Suppress) || math.IsInf(d.Most, 0):
		return fmt.Errorf("damping most %v is not allowed: want a penalty not below suppress (%v)", d.Most, d.Suppress)
	case !(d.Share <= 1):
		return fmt.Errorf("damping share %v is not allowed: want a share of the tasks, 0 for the default, below 0 for no damping", d.Share)
	}
	return nil
}

// record is how often a name has failed of late.
type record struct {
	penalty float64 // at the time at
	at      time.Duration
	damped  bool
}

func (r *record) now(now time.Duration, d *Damping) float64 {
	return r.penalty * math.Exp2(-float64(now-r.at)/float64(d.HalfLife))
}

// left is how long it takes until the penalty has fallen to the one for reuse.
func (r *record) left(now time.Duration, d *Damping) time.Duration {
	p := r.now(now, d)
	if p <= d.Reuse {
		return 0
	}
	return time.Duration(math.Log2(p/d.Reuse) * float64(d.HalfLife))
}

// failed adds to the penalty of a task that has ended without having drained.
func (t *Table) failed(k *task) {
	d := &t.cfg.Damping
	k.record.penalty, k.record.at = min(k.record.now(t.now, d)+1, d.Most), t.now
}

// damp has a task that has just come back wait, if it has failed too often.
func (t *Table) damp(k *task) {
	d := &t.cfg.Damping
	// A little below: the penalty has decayed since the failure that counts.
	if k.record.damped || k.record.now(t.now, d) < d.Suppress*.9 {
		return
	}
	alive, damped, running := 0, 0, 0
	for _, o := range t.tasks {
		if !o.alive() {
			continue
		}
		alive++
		if o.record.damped {
			damped++
		}
		if o != k && o.shown() == assignment.TaskRunning {
			running++
		}
	}
	if running == 0 || float64(damped+1) > d.Share*float64(alive) {
		return
	}
	k.record.damped = true
	t.say(k, Damped, "it has failed again and again: it owns nothing for %s", k.record.left(t.now, d).Round(time.Second))
}

// undamp lets a task own slices again when it has been up for long enough.
func (t *Table) undamp(k *task) {
	if !k.record.damped || k.record.now(t.now, &t.cfg.Damping) > t.cfg.Damping.Reuse {
		return
	}
	k.record.damped = false
	if k.alive() {
		t.say(k, Undamped, "it has stayed up")
	}
}
