package distributor

import (
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
	a.Session = d.sessions
	peers := d.peers(a.FirstTier)
	if old := peers[a.ID]; old != nil {
		old.cancel()
	}
	peers[a.ID] = a
	d.ready = true
	delete(d.errs, a.address)
	d.countPeers()
	d.log.Info("attached", a.kind(), a.ID, "zone", a.zone, "address", a.address)
	d.wire(time.Now())
}

// detached removes a stream that has ended, and reports whether another to the same
// assigner has taken its place.
func (d *Distributor) detached(a *attachment) (replaced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	peers := d.peers(a.FirstTier)
	if peers[a.ID] != a {
		return peers[a.ID] != nil
	}
	delete(peers, a.ID)
	a.mu.Lock()
	a.up.Ended(time.Now())
	a.mu.Unlock()
	d.prefs.Forget(a.Source())
	d.countPeers()
	d.wire(time.Now())
	return false
}

// prefer takes an assigner's view of which assigners are preferred.
func (d *Distributor) prefer(a *attachment, m *slicerv1.Preference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.peers(a.FirstTier)[a.ID] != a {
		return
	}
	before := d.prefs.Candidates()
	d.prefs.Update(a.Source(), m)
	d.wire(time.Now())
	if !slices.Equal(before, d.prefs.Candidates()) {
		select {
		case d.candidates <- struct{}{}:
		default:
		}
	}
}

// wire tells every job what there is now, and every assigner which are taken for
// preferred, and of the jobs that it has become preferred for and that have no subscriber
// here.
func (d *Distributor) wire(now time.Time) {
	changed := d.views.Look(now, d.prefs.Jobs(), d.prefs.Preferred)
	for _, j := range d.jobs {
		d.wireJob(now, j)
	}
	named := d.prefs.Named()
	for _, a := range d.attachments {
		a.notify(func(u *fanout.Upstream) {
			if changed {
				u.MarkViews()
			}
			u.SetPreferred(named[a.ID], func(job string) bool { return d.jobs[job] != nil })
		})
	}
	d.relay.Notify()
}

// wireJob tells a job what there is now.
func (d *Distributor) wireJob(now time.Time, j *job) {
	preferred, target := fanout.Choose(&d.prefs, j.name, d.attachments, d.upstreams, d.secondTier())
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

func (d *Distributor) attachedTo(firstTier bool, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers(firstTier)[id] != nil
}

func (d *Distributor) attachedToAny() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.peers(d.secondTier())) > 0
}

func (d *Distributor) attachedAt(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.peers(d.secondTier()) {
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
	if d.secondTier() {
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
