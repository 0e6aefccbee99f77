package remote

import (
	"maps"
	"slices"
	"sync"

	"github.com/slicer-project/slicer/lease"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// memory is what a session has been told and holds: with it, a server that does not know
// the session finds out whether the store has gone back to an earlier state since. It is
// what history is to a process that speaks to etcd itself.
type memory struct {
	mu       sync.Mutex
	revision int64 // the highest that was told
	version  int   // counts acquires and releases that have begun
	jobs     map[string]*slicerv1.SessionMemory
	out      map[string]bool // jobs in which the server says that it takes no part
}

func newMemory(revision int64, jobs []string, tasks map[string]string) *memory {
	m := &memory{revision: revision, jobs: map[string]*slicerv1.SessionMemory{}, out: map[string]bool{}}
	for _, job := range jobs {
		m.join(job, tasks[job])
	}
	return m
}

// joined reports whether the session takes part in a job, and as which task.
func (m *memory) joined(job string) (task string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[job]
	return j.GetTask(), j != nil && !m.out[job]
}

// takesNoPart makes joined report that the session does not take part in a job, until it joins
// it. What is remembered of it stays: the claims may be held still.
func (m *memory) takesNoPart(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out[job] = true
}

func (m *memory) join(job, task string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.copyOfLocked(job)
	n.Job, n.Task = job, task
	m.jobs[job] = n
	delete(m.out, job)
}

// copyOfLocked is what is remembered of a job, to be changed. The lock is held.
func (m *memory) copyOfLocked(job string) *slicerv1.SessionMemory {
	j := m.jobs[job]
	return &slicerv1.SessionMemory{Job: j.GetJob(), Task: j.GetTask(), Revision: j.GetRevision(), Fingerprint: j.GetFingerprint(), Guard: j.GetGuard(), Bridge: j.GetBridge()}
}

// request makes a renewal with all that is remembered, and says by what changed finds
// out later whether that has changed.
func (m *memory) request(secret []byte) (req *slicerv1.RenewSessionRequest, version int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req = &slicerv1.RenewSessionRequest{Session: secret, Revision: m.revision}
	for _, job := range slices.Sorted(maps.Keys(m.jobs)) {
		// What is in jobs is replaced and never changed, so it can be encoded without the lock.
		req.Jobs = append(req.Jobs, m.jobs[job])
	}
	return req, m.version
}

// changed reports whether an acquire or a release has begun since.
func (m *memory) changed(version int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version != version
}

// begin is the start of an acquire.
func (m *memory) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
}

// reached takes in a revision that was told.
func (m *memory) reached(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = max(m.revision, revision)
}

// tell takes in records that were told. A fingerprint of 0 is of a server that wants
// nothing to be remembered.
func (m *memory) tell(job string, seen lease.Seen, fingerprint uint64) {
	if fingerprint == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = max(m.revision, seen.Revision)
	if j := m.jobs[job]; j != nil && j.Revision <= seen.Revision {
		n := m.copyOfLocked(job)
		n.Revision, n.Fingerprint = seen.Revision, fingerprint
		m.jobs[job] = n
	}
}

// hold takes in a claim that is held.
func (m *memory) hold(job string, c lease.Claim, created int64) {
	if created == 0 {
		return
	}
	m.set(job, c, func(*slicerv1.Holder) *slicerv1.Holder {
		return &slicerv1.Holder{Claim: claim(c), Created: created}
	})
}

// drop is the start of a release: from now on the claim need not be held any more.
func (m *memory) drop(job string, c lease.Claim) {
	m.begin()
	m.set(job, c, func(h *slicerv1.Holder) *slicerv1.Holder {
		if held := h.GetClaim(); held.GetFrom() != int64(c.From) || held.GetTo() != int64(c.To) {
			return h
		}
		return nil
	})
}

// set replaces what is held of the claim's kind.
func (m *memory) set(job string, c lease.Claim, change func(*slicerv1.Holder) *slicerv1.Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[job]
	if j == nil {
		return
	}
	n := m.copyOfLocked(job)
	if c.Bridge() {
		n.Bridge = change(j.Bridge)
	} else {
		n.Guard = change(j.Guard)
	}
	m.jobs[job] = n
}
