package protocol

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// Patience is how long a subscriber waits for a job's first reading.
	Patience = 3 * time.Second
	// repeatEvery is the longest silence on a stream.
	repeatEvery = 5 * time.Second
	// maxRefusals is how often one assignment is sent to a subscriber that will
	// not have it.
	maxRefusals = 3
)

// Subscriber is what one has been sent and holds. It is not safe for concurrent use.
type Subscriber struct {
	said     *slicerv1.Status       // last
	slicelet bool                   // it is told limits
	limits   *slicerv1.Quotas       // said last
	newest   *assignment.Assignment // seen last
	held     held
	flight   held      // sent and not acknowledged, if its gen is not 0
	refusals int       // of the newest, in a row
	waitTill time.Time // for the first reading; zero when that is over
	repeatAt time.Time // when the status is said again

	compressed bool // it reads compressed wholes
	// part is the task for which it reads parts, "" for none, and onBase whether what is in
	// flight is a delta.
	part   string
	onBase bool
	// partSum is the checksum of its part of the newest, 0 as long as that has not been cut.
	partSum uint64
}

// held is what a subscriber has.
type held struct {
	gen        assignment.Generation
	store, sum uint64
}

func heldOf(a *assignment.Assignment) held { return held{a.Generation(), a.StoreID(), a.Checksum()} }

// Send is what to send: a status, or the job's limits, which are the same for all, or an
// assignment whole, or as a delta on Base; nothing if all are nil; a whole one may be Compressed.
// Both may be parts. Hopeless says that the stream is to end instead: State says why.
type Send struct {
	Status       *slicerv1.Status
	Quotas       *slicerv1.Quotas
	Newest, Base *assignment.Assignment
	Compressed   bool
	Hopeless     bool
}

// NewSubscriber begins with a hello. Errors are INVALID_ARGUMENT.
func NewSubscriber(now time.Time, h *slicerv1.Hello) (*Subscriber, error) {
	if err := CheckName(h.GetJob(), h.GetGeneration()); err != nil {
		return nil, err
	}
	if RoleName(h.GetRole()) == "" {
		return nil, invalid(&assignment.FieldError{Field: "role", Value: int32(h.GetRole()), Allowed: "1 (clerk), 2 (slicelet) or 3 (observer)"})
	}
	part := ""
	if name := h.GetTask().GetName(); h.GetParts() && h.GetRole() == slicerv1.Role_ROLE_SLICELET && assignment.ValidToken(name, assignment.MaxNameLen) {
		part = name
	}
	return &Subscriber{
		held:     held{assignment.Generation(h.GetGeneration()), h.GetStoreId(), h.GetChecksum()},
		waitTill: now.Add(Patience), repeatAt: now.Add(repeatEvery), compressed: h.GetCompressed(), part: part,
		slicelet: h.GetRole() == slicerv1.Role_ROLE_SLICELET,
	}, nil
}

// RoleName is how metrics call a role, "" one that there is not.
func RoleName(r slicerv1.Role) string {
	return [...]string{"", "clerk", "slicelet", "observer", ""}[min(max(r, 0), 4)]
}

// CheckName checks what a caller says of a job and a generation. Errors are
// INVALID_ARGUMENT.
func CheckName(job string, g int64) error {
	if err := assignment.ValidateJobName(job); err != nil {
		return invalid(err)
	}
	if g < 0 {
		return invalid(&assignment.FieldError{Field: "generation", Value: g, Allowed: "0 or above"})
	}
	return nil
}

func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// Ack takes an acknowledgement, or a refusal.
func (s *Subscriber) Ack(a *slicerv1.Ack) {
	g := assignment.Generation(a.GetGeneration())
	switch {
	case a.GetRefusal() != "":
		s.refusals++
		if !s.onBase {
			s.part = "" // should that be why
		}
		s.flight, s.held.sum = held{}, 0 // the whole comes next
		s.compressed = false             // should that be why
	case g == s.flight.gen:
		s.held, s.flight, s.refusals = s.flight, held{}, 0
	case g > s.held.gen && g > s.flight.gen:
		// It has got something newer elsewhere.
		s.held, s.flight = held{gen: g, store: s.held.store}, held{}
	}
}

// Next is what to send now, one thing after the other until it is nothing: after that it
// is to be asked again when the state has changed, or with an Ack, or when the time of Wake
// has come.
func (s *Subscriber) Next(now time.Time, st State) (send Send) {
	if !now.Before(s.waitTill) {
		s.waitTill = time.Time{}
	}
	if !now.Before(s.repeatAt) {
		s.said, s.repeatAt = nil, now.Add(repeatEvery)
	}
	switch {
	case st.Missing, !st.Known && s.waitTill.IsZero():
		send.Hopeless = true
	case st.Known && (s.said == nil || s.said.LoadMetric != st.Config.LoadMetric || s.said.Mode != slicerv1.Mode(st.Config.Mode) || wire.OverloadFromProto(s.said.Overload) != st.Config.Overload || s.said.Limited != limited(st.Config)):
		s.said, s.repeatAt = statusMessage(st.Config), now.Add(repeatEvery)
		send.Status = s.said
	case s.slicelet && st.quotas != nil && s.limits != st.quotas:
		s.limits, send.Quotas = st.quotas, st.quotas
	case st.Newest != nil:
		s.next(st, &send)
	}
	return send
}

// next sends the newest assignment if the subscriber lacks it: one at a time, the next
// when that one has been acknowledged.
func (s *Subscriber) next(st State, send *Send) {
	if s.newest != st.Newest {
		s.newest, s.refusals, s.partSum = st.Newest, 0, 0
	}
	a, base := st.Newest, st.Base
	if s.flight.gen != 0 || s.refusals >= maxRefusals || s.held.store == a.StoreID() && s.held.gen > a.Generation() {
		return
	}
	if s.part != "" && a.NumSlices() >= assignment.PartFrom {
		if s.partSum != 0 && s.held == (held{a.Generation(), a.StoreID(), s.partSum}) {
			return
		}
		a, base = s.partOf(st)
		s.partSum = a.Checksum()
	}
	newest := heldOf(a)
	if s.held == newest {
		return
	}
	s.flight, send.Newest, send.Compressed = newest, a, s.compressed
	if s.onBase = base != nil && s.held == heldOf(base); s.onBase {
		send.Base, send.Compressed = base, false
	}
}

// partOf is the subscriber's part of the newest, and of the base if that may be what it holds.
func (s *Subscriber) partOf(st State) (part, base *assignment.Assignment) {
	var held *assignment.Cut
	if b := st.Base; b != nil && s.held.gen == b.Generation() && s.held.store == b.StoreID() {
		held = st.BaseParts
	}
	return st.Parts.Since(held, s.part)
}

// Wake is when Next is to be called at the latest.
func (s *Subscriber) Wake() time.Time {
	if !s.waitTill.IsZero() && s.waitTill.Before(s.repeatAt) {
		return s.waitTill
	}
	return s.repeatAt
}

func statusMessage(c assignment.JobConfig) *slicerv1.Status {
	return &slicerv1.Status{
		LoadMetric: c.LoadMetric, Mode: slicerv1.Mode(c.Mode), TakesReports: false, RepeatMs: repeatEvery.Milliseconds(),
		Overload: wire.OverloadToProto(c.Overload), Limited: limited(c),
	}
}

func limited(c assignment.JobConfig) bool { return !c.Limits.Equal(assignment.Limits{}) }
