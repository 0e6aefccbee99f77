package slicelet

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// Handle is a request's view of its key: taken when the request arrives, asked
// again before its result is let out (Slicer paper, section 2.2). It is a small
// value; it may be kept for as long as something is remembered about the key,
// such as a cached inbox. The zero Handle owns nothing.
type Handle struct {
	s     *Slicelet
	key   assignment.SliceKey
	token assignment.Generation
	epoch uint64
	owned bool
}

// Key is the slice key.
func (h Handle) Key() assignment.SliceKey { return h.key }

// Owned reports whether this task owned the key when the handle was taken. In
// consistent mode no other task did then.
func (h Handle) Owned() bool { return h.owned }

// AssignedContinuously reports whether this task has owned the key at every moment
// since the handle was taken, and owns it now. Looking at both ends would not do:
// the key might have been away in between, and another task might have written.
// Once false it stays false; a handle taken while the key was not owned never is
// valid. It takes no lock and does not allocate; in consistent mode it reads
// the clock each time, so that a process that was stopped for longer than its lease
// finds its handles broken at once.
func (h Handle) AssignedContinuously() bool {
	if !h.owned {
		return false
	}
	v, i, owned := h.s.find(h.key)
	return owned && v.epoch == h.epoch && v.tokenOf(i, h.key) == h.token
}

// FencingToken is the generation since which this incarnation of the task has
// owned the key without a break, or a later one; 0 if it does not own it, or only
// provisionally. Splits, merges and the moves of other keys leave it alone.
//
// It is for what no check can do. Whatever the task has checked, it may be stopped
// the moment after, for longer than its lease, and then go on to write to a store
// what it has checked before: another task owns the key by now, and has written.
// A later owner of the key has a higher token. So send the token with each write to
// a store that keeps the highest it has seen for the key and refuses lower ones,
// and, as a new owner, let the store see the token before reading what is there:
// from then on nothing can change behind your back.
//
// The token alone does not order the writes of one owner: one of which no answer came
// may arrive after a later one that was acknowledged, and a task that loses a key and
// gets it back may have the same token again. So send a sequence number beside it
// that grows with each access of the process to the store, and let the store compare
// (token, sequence) and refuse what is not higher. See the example. What cannot be
// fenced, such as a mail that is sent, can be done twice.
//
// The fence also holds where no lease can: a virtual machine that its hypervisor
// pauses, or that is restored from a checkpoint, may not see its clock advance, and
// then believes in a lease that has run out.
//
// In affinity mode two tasks may own a key at once, and tokens only say which is
// later.
func (h Handle) FencingToken() assignment.Generation { return max(h.token, 0) }

// maxTook bounds what one call of Took counts, so that a request that waited for an
// hour does not stand for all the CPU of the moment at which it ends.
const maxTook = 10 * time.Second

// Took says that the request has kept the task busy for so long, or for so much
// longer: it may be called several times. In a job whose load metric is cpu, the
// process's CPU is shared out among keys by it; in others it does nothing, and costs
// next to nothing. Leave out what the request has waited for, as far as you can. Call
// it for all requests of a task or for none, since then those that say nothing count
// for nothing; the handlers of packages sliceletgrpc and slicelethttp call it. More
// than 10 s count as 10 s.
func (h Handle) Took(d time.Duration) {
	if d <= 0 || !h.CountsTime() {
		return
	}
	v := h.s.view.Load()
	h.s.meter.took(h.key, v.metered, v.metered.find(h.key), min(d, maxTook).Seconds())
}

// CountsTime reports whether Took counts at the moment, as in a job whose load metric is cpu: in others
// nothing need be timed for it.
func (h Handle) CountsTime() bool { return h.s != nil && h.s.timed.Load() }

// ReportLoad adds load, in a unit of the application's own, to what the request's key
// has brought, for jobs whose load metric is custom: it is Slicelet.ReportLoad for what
// is known only when the work is done. It may be called several times. Negative load,
// infinite load and what is no number are ignored.
func (h Handle) ReportLoad(load float64) {
	if h.s != nil {
		h.s.reportLoad(h.key, load)
	}
}

// Shed counts the request as refused for want of room. It is load all the same: what is
// turned away is what the task could not carry, so that the balancer gives the key more
// room. In jobs balanced by CPU or by custom load it counts as a request that is served does
// on average. A request that is refused since the key is not owned has been counted as
// misrouted, and is not shed.
func (h Handle) Shed() { h.shed(true) }

func (h Handle) shed(demand bool) {
	if h.s != nil {
		v := h.s.view.Load()
		h.s.meter.shed(h.key, v.metered, v.metered.find(h.key), demand)
	}
}
