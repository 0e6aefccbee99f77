package fanout

import (
	"math/bits"
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
	// Gaps between two statuses: when something changes that may be waited for, and when
	// only the names of stragglers change.
	StatusGap     = 100 * time.Millisecond
	StragglersGap = time.Second
	// repeatBatch is how many subscribers are sent a repeated status at once: the
	// repetitions of a large job are spread over the interval.
	repeatBatch = 256
)

// statusPublisher holds the status that subscribers see.
type statusPublisher struct {
	version        uint64           // of shown; 0 when nothing has been shown
	shown          *slicerv1.Status // as all but slicelets see it
	conditions     []*slicerv1.TaskCondition
	next           *slicerv1.Status // what is to be shown, nil if it is the same
	due            due
	groups         [numGroups]group
	unacknowledged bool // the preferred assigner does not hear this Distributor
}

// group are subscribers that hear the status again in the same interval.
type group struct {
	shown    *slicerv1.Status
	version  uint64 // since which it is
	messages *prepared.Messages
	// repeats counts the batches that have been repeated.
	repeats  uint64
	repeatAt time.Time
}

const (
	ofSlicelets = iota
	ofOthers
	numGroups
)

func groupOf(role slicerv1.Role) int {
	if role == slicerv1.Role_ROLE_SLICELET {
		return ofSlicelets
	}
	return ofOthers
}

func intervalOf(g int) time.Duration {
	if g == ofSlicelets {
		return SliceletRepeat
	}
	return RepeatInterval
}

// reportInterval is how often the slicelets of a job report, so that a report may come
// late, or not at all, before they are taken for dead.
func reportInterval(m *slicerv1.JobStatus) time.Duration {
	ms := m.GetHeartbeatTimeoutMs()
	if ms <= 0 || ms > 4*maxReportInterval.Milliseconds() {
		return maxReportInterval
	}
	return max(time.Duration(ms)*time.Millisecond/4, minReportInterval)
}

// newest is what subscribers of a role are to see, nil if nothing yet.
func (b *statusPublisher) newest(role slicerv1.Role) (*prepared.Messages, uint64) {
	g := &b.groups[groupOf(role)]
	return g.messages, g.version
}

// changed takes what the assigner says.
func (b *statusPublisher) changed(now time.Time, m *slicerv1.JobStatus) {
	s := &slicerv1.Status{
		ConvergedGeneration: m.GetConvergedGeneration(), Stragglers: m.GetStragglers(),
		ReportIntervalMs: reportInterval(m).Milliseconds(), LoadMetric: m.GetLoadMetric(), Mode: m.GetMode(),
		TakesReports: true, RepeatMs: RepeatInterval.Milliseconds(), Unacknowledged: b.unacknowledged && !alwaysAcknowledged,
		Overload: m.GetOverload(), Conditions: b.conditions, Subscribers: subscribersOf(m), Limited: m.GetLimited(),
	}
	s.Stragglers = s.Stragglers[:min(len(s.Stragglers), wire.MaxStragglers)]
	b.next = nil
	switch {
	case b.shown == nil:
		b.next, b.due.at = s, now
	case s.ReportIntervalMs != b.shown.ReportIntervalMs:
		b.next, b.due.at = s, now // tasks die of a delay
	case s.ConvergedGeneration != b.shown.ConvergedGeneration || s.LoadMetric != b.shown.LoadMetric || s.Mode != b.shown.Mode || !proto.Equal(s.Overload, b.shown.Overload) || s.Unacknowledged != b.shown.Unacknowledged || s.Limited != b.shown.Limited:
		b.next = s
		b.due.after(now, StatusGap)
	case !slices.Equal(s.Stragglers, b.shown.Stragglers) || !wire.SameConditions(s.Conditions, b.shown.Conditions) || s.Subscribers != b.shown.Subscribers:
		b.next = s
		b.due.after(now, StragglersGap)
	}
}

// subscribersOf is how many the job has in all, by what its assigner says of the mean.
func subscribersOf(m *slicerv1.JobStatus) uint32 {
	n := min(uint64(m.GetDistributors())*uint64(m.GetMeanSubscribers()), 1<<24)
	if n == 0 {
		return 0
	}
	return 1 << bits.Len64(n-1)
}

// reset forgets what was shown, for a job that does not exist any more.
func (b *statusPublisher) reset() {
	*b = statusPublisher{unacknowledged: b.unacknowledged, conditions: b.conditions}
}

// acknowledge takes whether the preferred assigner hears this Distributor.
func (b *statusPublisher) acknowledge(now time.Time, unacknowledged bool) {
	b.unacknowledged = unacknowledged
	if b.change() {
		b.next.Unacknowledged = unacknowledged && !alwaysAcknowledged
		b.due.after(now, StatusGap)
	}
}

// tell takes the conditions of tasks, which have waited for their time.
func (b *statusPublisher) tell(now time.Time, conditions []*slicerv1.TaskCondition) {
	if wire.SameConditions(b.conditions, conditions) {
		return
	}
	b.conditions = conditions
	if b.change() {
		b.next.Conditions = conditions
		b.due.after(now, 0)
	}
}

// change makes next what may be changed, and reports whether there is any: else what is to
// be said becomes part of the first.
func (b *statusPublisher) change() bool {
	if b.next == nil {
		b.next = b.shown
	}
	if b.next == nil {
		return false
	}
	b.next = proto.CloneOf(b.next)
	return true
}

// show makes what is due the status, and reports whether there was any.
func (b *statusPublisher) show(now time.Time) bool {
	if b.next == nil || !b.due.ready(now) {
		return false
	}
	first := b.shown == nil
	b.shown, b.next = b.next, nil
	b.version++
	for i := range b.groups {
		g, shown := &b.groups[i], proto.CloneOf(b.shown)
		shown.RepeatMs = intervalOf(i).Milliseconds()
		if i == ofSlicelets {
			shown.Conditions = nil
		} else {
			shown.Subscribers, shown.Limited = 0, false
		}
		if first {
			g.repeatAt = now.Add(intervalOf(i))
		} else if proto.Equal(g.shown, shown) {
			continue
		}
		g.shown, g.version = shown, b.version
		g.messages = statusMessages(func() *slicerv1.Status { return shown })
	}
	b.due.sent(now)
	return true
}

// statusMessages is a status, made when it is first sent.
func statusMessages(status func() *slicerv1.Status) *prepared.Messages {
	return prepared.New(func() ([]proto.Message, error) {
		return []proto.Message{&slicerv1.WatchResponse{Message: &slicerv1.WatchResponse_Status{Status: status()}}}, nil
	})
}

// batch says which of a group's n subscribers are to hear the status again now:
// those whose number leaves rest when divided by parts.
func (b *statusPublisher) batch(now time.Time, which, n int) (rest, parts uint64, due bool) {
	g := &b.groups[which]
	if b.shown == nil || g.repeatAt.After(now) {
		return 0, 1, false
	}
	parts = uint64(n)/repeatBatch + 1
	g.repeats++
	g.repeatAt = now.Add(intervalOf(which) / time.Duration(parts))
	return g.repeats % parts, parts, true
}

// wake is when show or batch will next have something to do.
func (b *statusPublisher) wake() (at time.Time) {
	if b.shown != nil {
		for i := range b.groups {
			at = Sooner(at, b.groups[i].repeatAt)
		}
	}
	if b.next != nil {
		at = Sooner(at, b.due.at)
	}
	return at
}
