package distributor

import (
	"maps"
	"slices"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// attached enters a stream to an assigner. One to the same assigner makes way:
// the assigner, too, goes by the newer.
func (d *Distributor) attached(a *attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sessions++
	a.number = d.sessions
	peers := d.peers(a.upper)
	if old := peers[a.id]; old != nil {
		old.cancel()
	}
	peers[a.id] = a
	d.ready = true
	a.beliefs = !a.upper
	a.poke()
	delete(d.errs, a.address)
	d.countPeers()
	d.log.Info("attached", a.kind(), a.id, "zone", a.zone, "address", a.address)
	d.wire(d.host.now())
}

// detached removes a stream that has ended, and says whether another to the same
// assigner has taken its place.
func (d *Distributor) detached(a *attachment) (replaced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	peers := d.peers(a.upper)
	if peers[a.id] != a {
		return peers[a.id] != nil
	}
	delete(peers, a.id)
	a.ended(d.host.now())
	d.prefs.Forget(a.source())
	d.countPeers()
	d.wire(d.host.now())
	return false
}

// prefer takes an assigner's view of who is preferred.
func (d *Distributor) prefer(a *attachment, m *slicerv1.Preference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.peers(a.upper)[a.id] != a {
		return
	}
	before := d.prefs.Candidates()
	d.prefs.Update(a.source(), m)
	d.wire(d.host.now())
	if !slices.Equal(before, d.prefs.Candidates()) {
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
	for _, name := range d.prefs.Jobs() {
		a := d.attachments[d.prefs.Preferred(name)]
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
	for _, b := range d.branches {
		b.poke()
	}
}

// wireJob tells a job who is there. In the first tier the preferred assigner is
// asked as well as told, if it is attached; in the second a Distributor of the first
// is asked.
func (d *Distributor) wireJob(now time.Time, j *job) {
	preferred := d.attachments[d.prefs.Preferred(j.name)]
	target := preferred
	if target == nil || d.second() {
		peers := d.peers(d.second())
		target = peers[fanout.StandIn(slices.Collect(maps.Keys(peers)), j.name)]
	}
	store, _ := d.prefs.StoreOf(j.name)
	j.setPeers(now, preferred, target, store)
}

// failed remembers why an address is not attached, for Ready.
func (d *Distributor) failed(address string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ready && err != nil {
		d.errs[address] = assignment.Clip(err.Error(), maxText)
	}
}

func (d *Distributor) attachedTo(upper bool, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers(upper)[id] != nil
}

func (d *Distributor) attachedToAny() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.peers(d.second())) > 0
}

func (d *Distributor) attachedAt(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.peers(d.second()) {
		if a.address == address {
			return true
		}
	}
	return false
}

// names are host:port of all that are to be connected to: in the first tier the
// assigners that the configuration and the assigners themselves have named, in the
// second the Upstreams.
func (d *Distributor) names() []string {
	if d.second() {
		return d.cfg.Upstreams
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Clone(d.cfg.Assigners)
	for _, c := range d.prefs.Candidates() {
		names = append(names, c.Address)
	}
	return names
}
