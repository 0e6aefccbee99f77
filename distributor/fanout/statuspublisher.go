package fanout

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor/internal/prepared"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxReportInterval is how often slicelets report at the least, and minReportInterval
	// at the most; otherwise it is a quarter of the heartbeat timeout.
	maxReportInterval = time.Second
	minReportInterval = 100 * time.Millisecond
	// RepeatInterval is how often a subscriber hears something at the least, and
	// sliceletRepeat how often a slicelet does, which is to notice a Distributor
	// that is stuck before it has been silent for much longer than the usual
	// heartbeat timeout. Saying it takes some 35 us of CPU time: 17 % of a core for
	// ten thousand slicelets.
	RepeatInterval = 5 * time.Second
	SliceletRepeat = 2 * time.Second
	// Gaps between two statuses: when something changes that somebody waits for,
	// and when only the names of those who are late do.
	StatusGap     = 100 * time.Millisecond
	StragglersGap = time.Second
	// repeatBatch is how many subscribers are sent a repeated status at once: the
	// repetitions of a large job are spread over the interval.
	repeatBatch = 256
)

// StatusPublisher holds the status that subscribers see.
type StatusPublisher struct {
	version        uint64           // of shown; 0 when nothing has been shown
	Shown          *slicerv1.Status // as all but slicelets see it
	next           *slicerv1.Status // what is to be shown, nil if it is the same
	due            due
	groups         [NumGroups]group
	Unacknowledged bool // the preferred assigner does not hear this Distributor
}

// group are subscribers that hear the status again in the same interval.
type group struct {
	messages *prepared.Messages
	// repeats counts the batches that have been repeated.
	repeats  uint64
	repeatAt time.Time
}

const (
	OfSlicelets = iota
	OfOthers
	NumGroups
)

func GroupOf(role slicerv1.Role) int {
	if role == slicerv1.Role_ROLE_SLICELET {
		return OfSlicelets
	}
	return OfOthers
}

func intervalOf(g int) time.Duration {
	if g == OfSlicelets {
		return SliceletRepeat
	}
	return RepeatInterval
}

// ReportInterval is how often the slicelets of a job report, so that a report may come
// late, or not at all, before they are taken for dead.
func ReportInterval(m *slicerv1.JobStatus) time.Duration {
	ms := m.GetHeartbeatTimeoutMs()
	if ms <= 0 || ms > 4*maxReportInterval.Milliseconds() {
		return maxReportInterval
	}
	return max(time.Duration(ms)*time.Millisecond/4, minReportInterval)
}

// Newest is what subscribers of a role are to see, nil if nothing yet.
func (b *StatusPublisher) Newest(role slicerv1.Role) (*prepared.Messages, uint64) {
	return b.groups[GroupOf(role)].messages, b.version
}

// Changed takes what the assigner says.
func (b *StatusPublisher) Changed(now time.Time, m *slicerv1.JobStatus) {
	s := &slicerv1.Status{
		ConvergedGeneration: m.GetConvergedGeneration(), Stragglers: m.GetStragglers(),
		ReportIntervalMs: ReportInterval(m).Milliseconds(), LoadMetric: m.GetLoadMetric(), Mode: m.GetMode(),
		TakesReports: true, RepeatMs: RepeatInterval.Milliseconds(), Unheard: b.Unacknowledged && !alwaysHeard,
	}
	s.Stragglers = s.Stragglers[:min(len(s.Stragglers), wire.MaxStragglers)]
	b.next = nil
	switch {
	case b.Shown == nil:
		b.next, b.due.At = s, now
	case s.ReportIntervalMs != b.Shown.ReportIntervalMs:
		b.next, b.due.At = s, now // tasks die of a delay
	case s.ConvergedGeneration != b.Shown.ConvergedGeneration || s.LoadMetric != b.Shown.LoadMetric || s.Mode != b.Shown.Mode || s.Unheard != b.Shown.Unheard:
		b.next = s
		b.due.after(now, StatusGap)
	case !slices.Equal(s.Stragglers, b.Shown.Stragglers):
		b.next = s
		b.due.after(now, StragglersGap)
	}
}

// Reset forgets what was shown, for a job that does not exist any more.
func (b *StatusPublisher) Reset() { *b = StatusPublisher{Unacknowledged: b.Unacknowledged} }

// Acknowledge takes whether the preferred assigner hears this Distributor.
func (b *StatusPublisher) Acknowledge(now time.Time, unheard bool) {
	b.Unacknowledged = unheard
	if b.next == nil {
		b.next = b.Shown
	}
	if b.next == nil {
		return // it is part of the first
	}
	b.next = proto.CloneOf(b.next)
	b.next.Unheard = unheard && !alwaysHeard
	b.due.after(now, StatusGap)
}

// Show makes what is due the status, and reports whether there was any.
func (b *StatusPublisher) Show(now time.Time) bool {
	if b.next == nil || !b.due.ready(now) {
		return false
	}
	first := b.Shown == nil
	b.Shown, b.next = b.next, nil
	for i := range b.groups {
		g, shown := &b.groups[i], b.Shown
		g.messages = StatusMessages(func() *slicerv1.Status {
			s := proto.CloneOf(shown)
			s.RepeatMs = intervalOf(i).Milliseconds()
			return s
		})
		if first {
			g.repeatAt = now.Add(intervalOf(i))
		}
	}
	b.version++
	b.due.sent(now)
	return true
}

// StatusMessages is a status, made when it is first sent.
func StatusMessages(status func() *slicerv1.Status) *prepared.Messages {
	return prepared.New(func() ([]proto.Message, error) {
		return []proto.Message{&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: status()}}}, nil
	})
}

// Batch says which of a group's n subscribers are to hear the status again now:
// those whose number leaves rest when divided by parts.
func (b *StatusPublisher) Batch(now time.Time, which, n int) (rest, parts uint64, due bool) {
	g := &b.groups[which]
	if b.Shown == nil || g.repeatAt.After(now) {
		return 0, 1, false
	}
	parts = uint64(n)/repeatBatch + 1
	g.repeats++
	g.repeatAt = now.Add(intervalOf(which) / time.Duration(parts))
	return g.repeats % parts, parts, true
}

// Wake is when show or batch will next have something to do.
func (b *StatusPublisher) Wake() (at time.Time) {
	if b.Shown != nil {
		for i := range b.groups {
			at = Sooner(at, b.groups[i].repeatAt)
		}
	}
	if b.next != nil {
		at = Sooner(at, b.due.At)
	}
	return at
}
