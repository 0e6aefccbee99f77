package cluster

import (
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// No task that lives is stored as dead by an assigner, if for unheardFor there was a
// Distributor that the task could reach and that could reach that assigner, all three
// running without a pause, and the assigner was preferred: before that no Distributor says
// that it is acknowledged by it, so the task cannot know which to ask. It does not matter which Distributor the task was connected
// to, and which hosts that one could reach, in which direction. But meanwhile the task
// must not have been cut off from a Distributor: if that is its own, which the assigner
// hears, it may miss the word of that one for longer than the heartbeat timeout. It takes
//
//   - a Distributor up to 5 s to give up an attempt to reach the assigner that began
//     before it could, and as long to try again;
//   - the task as long to come to see that its own is not heard, and to ask the others,
//     of which one may not answer, twice.
const unheardFor = 20 * time.Second

// changed is when two hosts were last cut off or joined, or lost a connection.
func (w *world) changed(a, b *host) time.Duration {
	return max(w.touched[pair{a.id, b.id}], w.touched[pair{b.id, a.id}])
}

// path is since when a task could be heard by an assigner by way of some Distributor
// without a break; ok is false if it cannot.
func (w *world) path(s *sliceletHost, a *assignerHost) (since time.Duration, ok bool) {
	since = w.at
	own := max(s.wellAt, a.wellAt)
	for _, d := range w.distributors {
		own = max(own, w.changed(s.host, d.host))
		if d.up && !d.paused && !w.apart(s.host, d.host) && !w.apart(d.host, a.host) {
			since, ok = min(since, max(d.wellAt, w.changed(d.host, a.host))), true
		}
	}
	return max(since, own), ok
}

// spared looks at the tasks that are dead in what an assigner is about to store, and were
// not. One that drains may be taken to have ended as soon as it owns nothing.
func (c *checker) spared(by *assignerHost, prev, next *assignment.Assignment) {
	for _, s := range c.w.slicelets {
		pos, ok := next.Position(s.name)
		if !ok || !s.up || s.paused || s.draining || by.paused || next.Task(pos).State != assignment.TaskDead || next.Task(pos).Incarnation != s.task.Incarnation {
			continue
		}
		if p, ok := prev.Position(s.name); ok && prev.Task(p).Same(next.Task(pos)) && prev.Task(p).State == assignment.TaskDead {
			continue
		}
		since, ok := c.w.path(s, by)
		if since = max(since, by.chargedAt); ok && c.w.at-since >= unheardFor {
			c.w.fail("generation %d: %s is dead, though it lives and could have been heard for %s; it is served by %s: %v",
				next.Generation(), s.name, c.w.at-since, s.state.Peer, s.state.Err)
		}
	}
}
