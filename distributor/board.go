package distributor

import (
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// reportInterval is how often slicelets report.
	reportInterval = time.Second
	// repeatInterval is how often a subscriber hears something at the least.
	repeatInterval = 5 * time.Second
	// Gaps between two statuses: when something changes that somebody waits for,
	// and when only the names of those who are late do.
	statusGap     = 100 * time.Millisecond
	stragglersGap = time.Second
	// repeatBatch is how many subscribers are sent a repeated status at once: the
	// repetitions of a large job are spread over the interval.
	repeatBatch = 256
)

// board holds the status that subscribers see. Pure.
type board struct {
	version uint64 // of shown; 0 when nothing has been shown
	shown   *slicerv1.Status
	payload *payload
	next    *slicerv1.Status // what is to be shown, nil if it is the same
	due     due
	// repeats counts the batches that have been repeated.
	repeats  uint64
	repeatAt time.Time
}

// newest is what subscribers are to see, nil if nothing yet.
func (b *board) newest() (*payload, uint64) { return b.payload, b.version }

// changed takes what the assigner says.
func (b *board) changed(now time.Time, m *slicerv1.JobStatus) {
	s := &slicerv1.Status{
		ConvergedGeneration: m.GetConvergedGeneration(), Stragglers: m.GetStragglers(),
		ReportIntervalMs: reportInterval.Milliseconds(), LoadMetric: m.GetLoadMetric(), Mode: m.GetMode(),
		TakesReports: true, RepeatMs: repeatInterval.Milliseconds(),
	}
	s.Stragglers = s.Stragglers[:min(len(s.Stragglers), maxStragglers)]
	b.next = nil
	switch {
	case b.shown == nil:
		b.next, b.due.at = s, now
	case s.ConvergedGeneration != b.shown.ConvergedGeneration || s.LoadMetric != b.shown.LoadMetric || s.Mode != b.shown.Mode:
		b.next = s
		b.due.after(now, statusGap)
	case !slices.Equal(s.Stragglers, b.shown.Stragglers):
		b.next = s
		b.due.after(now, stragglersGap)
	}
}

// show makes what is due the status, and reports whether there was any.
func (b *board) show(now time.Time) bool {
	if b.next == nil || !b.due.ready(now) {
		return false
	}
	if b.shown == nil {
		b.repeatAt = now.Add(repeatInterval)
	}
	b.shown, b.next = b.next, nil
	b.payload = statusPayload(b.shown)
	b.version++
	b.due.sent(now)
	return true
}

// batch says which of n subscribers are to hear the status again now: those
// whose number leaves rest when divided by parts.
func (b *board) batch(now time.Time, n int) (rest, parts uint64, due bool) {
	if b.shown == nil || b.repeatAt.After(now) {
		return 0, 1, false
	}
	parts = uint64(n)/repeatBatch + 1
	b.repeats++
	b.repeatAt = now.Add(repeatInterval / time.Duration(parts))
	return b.repeats % parts, parts, true
}

// wake is when show or batch will next have something to do.
func (b *board) wake() (at time.Time) {
	if b.shown != nil {
		at = b.repeatAt
	}
	if b.next != nil {
		at = sooner(at, b.due.at)
	}
	return at
}

// publish shows subscribers what is due, and repeats it to some.
func (j *job) publish(now time.Time) (next time.Time) {
	if j.board.show(now) {
		for _, s := range j.subs {
			j.kick(s)
		}
	}
	if rest, parts, due := j.board.batch(now, len(j.subs)); due {
		for id, s := range j.subs {
			if id%parts == rest {
				s.repeat = true
				j.kick(s)
			}
		}
	}
	return j.board.wake()
}
