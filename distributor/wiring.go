package distributor

import (
	"maps"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// attached enters a stream to an assigner. One to the same assigner makes way:
// the assigner, too, goes by the newer.
func (d *Distributor) attached(a *attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions++
	a.number = d.sessions
	if old := d.attachments[a.id]; old != nil {
		old.cancel()
	}
	d.attachments[a.id] = a
	d.ready = true
	a.beliefs = true
	delete(d.errs, a.address)
	d.metrics.assigners.Set(float64(len(d.attachments)))
	d.log.Info("assigner attached", "assigner", a.id, "zone", a.zone, "address", a.address)
	d.wire(d.host.now())
}

// detached removes a stream that has ended, and says whether another to the same
// assigner has taken its place.
func (d *Distributor) detached(a *attachment) (replaced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attachments[a.id] != a {
		return d.attachments[a.id] != nil
	}
	delete(d.attachments, a.id)
	d.prefs.forget(a.id)
	d.metrics.assigners.Set(float64(len(d.attachments)))
	d.wire(d.host.now())
	return false
}

// prefer takes an assigner's view of who is preferred.
func (d *Distributor) prefer(a *attachment, m *slicerv1.Preference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attachments[a.id] != a {
		return
	}
	before := d.prefs.candidates()
	d.prefs.update(a.id, m)
	d.wire(d.host.now())
	if !slices.Equal(before, d.prefs.candidates()) {
		select {
		case d.candidates <- struct{}{}:
		default:
		}
	}
}

// wire tells every job who is there now, and every assigner of the jobs that it
// has become preferred for and that nobody here subscribes to.
func (d *Distributor) wire(now time.Time) {
	d.believe(now)
	for _, j := range d.jobs {
		d.wireJob(now, j)
	}
	named := make(map[*attachment]map[string]struct{})
	for _, name := range d.prefs.jobs() {
		a := d.attachments[d.prefs.preferred(name)]
		if a == nil {
			continue
		}
		if named[a] == nil {
			named[a] = make(map[string]struct{})
		}
		named[a][name] = struct{}{}
		if _, told := a.told[name]; !told && d.jobs[name] == nil {
			a.markVacant(name)
		}
	}
	for _, a := range d.attachments {
		if a.told = named[a]; a.told == nil {
			a.told = make(map[string]struct{})
		}
	}
}

func (d *Distributor) wireJob(now time.Time, j *job) {
	preferred := d.attachments[d.prefs.preferred(j.name)]
	var other *attachment
	if preferred == nil && len(d.attachments) > 0 {
		other = d.attachments[standIn(slices.Collect(maps.Keys(d.attachments)), j.name)]
	}
	j.setPeers(now, preferred, other)
}

// failed remembers why an address is not attached, for Ready.
func (d *Distributor) failed(address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ready && err != nil {
		d.errs[address] = clip(err.Error())
	}
}

func (d *Distributor) attachedTo(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attachments[id] != nil
}

func (d *Distributor) attachedToAny() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.attachments) > 0
}

func (d *Distributor) attachedAt(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attachments {
		if a.address == address {
			return true
		}
	}
	return false
}

// assignerNames are host:port of all assigners that anybody has named: the
// configuration and the assigners themselves.
func (d *Distributor) assignerNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Clone(d.cfg.Assigners)
	for _, c := range d.prefs.candidates() {
		names = append(names, c.address)
	}
	return names
}
