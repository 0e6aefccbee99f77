package downstream

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// heardEvery is how often a Distributor is told, at the least, that it is heard.
	heardEvery = time.Second
	// maxRefusals bounds the refusals that wait; those left out come again with the
	// task's next report.
	maxRefusals = 1024
	// maxJobs is how many jobs one Distributor may speak of.
	maxJobs = 1 << 16
)

// Stream is one Distributor's stream, from its hello to its end: what is to be said on it,
// and which jobs and preferred assigners it has named. What is to be said of a job is kept
// as the job's name, never as a message: when its turn comes whatever is newest is sent. So
// a slow Distributor costs one message. It is not safe for concurrent use.
type Stream struct {
	hello     *slicerv1.AttachResponse // nil when it has been said
	hears     bool                     // the Distributor is to be told that it is heard
	heardAt   time.Duration            // when that was so last
	prefs     []*slicerv1.Preference   // to be said, by store
	told      []*slicerv1.Preference   // said last, by store
	refusals  []*slicerv1.RefuseTask
	jobs      map[string]bool // the jobs that it speaks of; those that are in the queue
	queue     []string        // jobs of which there is something to say, in turn
	preferred map[string]Preferred
}

// Preferred is which assigner a Distributor takes for preferred for a job.
type Preferred struct {
	ID    string        // "" for none
	Since time.Duration // on the monotonic clock here
}

// CheckHello validates the first message of a stream. The error is a gRPC status.
func CheckHello(m *slicerv1.DistributorHello) error {
	if m == nil {
		return status.Error(codes.InvalidArgument, "the first message is not a hello")
	}
	// A Distributor's name obeys the rules of an assigner's.
	if err := (store.Candidate{ID: m.GetDistributorId(), Address: "x", Zone: m.GetZone()}).Validate(); err != nil {
		return status.Errorf(codes.InvalidArgument, "hello: distributor: %v", err)
	}
	return nil
}

// NewStream begins with the assigner's hello.
func NewStream(assigner, zone string) *Stream {
	hello := &slicerv1.AssignerHello{AssignerId: assigner, Zone: zone, Acknowledges: true}
	return &Stream{
		hello: &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Hello{Hello: hello}},
		jobs:  make(map[string]bool), preferred: make(map[string]Preferred),
	}
}

// Received takes note of a message. It returns the job that the message is about, "" if
// none, and what of it is not allowed.
func (s *Stream) Received(now time.Duration, m *slicerv1.AttachRequest) (job string, bad error) {
	if now-s.heardAt >= heardEvery {
		s.hears, s.heardAt = true, now
	}
	switch x := m.GetMessage().(type) {
	case *slicerv1.AttachRequest_PreferenceView:
		return "", s.prefers(now, x.PreferenceView)
	case *slicerv1.AttachRequest_Reports:
		if job = x.Reports.GetJob(); job == "" {
			return "", nil // a sign of life
		}
	case *slicerv1.AttachRequest_Want:
		job = x.Want.GetJob()
	case *slicerv1.AttachRequest_Acks:
		job = x.Acks.GetJob()
	case *slicerv1.AttachRequest_Clients:
		job = x.Clients.GetJob()
	case *slicerv1.AttachRequest_CustomerUses:
		job = x.CustomerUses.GetJob()
	case *slicerv1.AttachRequest_WantBase:
		job = x.WantBase.GetJob()
	default:
		return "", nil
	}
	if _, known := s.jobs[job]; known {
		return job, nil
	}
	if err := assignment.ValidateJobName(job); err != nil {
		return "", err
	}
	if len(s.jobs) >= maxJobs {
		return "", fmt.Errorf("job %q is one too many: a Distributor may speak of %d", job, maxJobs)
	}
	s.jobs[job] = false
	return job, nil
}

// Hears reports whether the Distributor is to be told that it is heard.
func (s *Stream) Hears() bool { return s.hears }

// prefers takes in which assigners the Distributor takes for preferred. What makes no
// sense is left out.
func (s *Stream) prefers(now time.Duration, m *slicerv1.PreferenceView) (bad error) {
	if m.GetFirst() {
		clear(s.preferred)
	}
	for _, b := range m.GetJobs() {
		if len(s.preferred) >= maxJobs {
			return bad
		}
		id := b.GetAssignerId()
		err := assignment.ValidateJobName(b.GetJob())
		if err == nil && id != "" {
			err = store.Candidate{ID: id, Address: "x"}.Validate()
		}
		if err != nil {
			bad = err
			continue
		}
		age := time.Duration(min(max(b.GetForMs(), 0), time.Duration(1<<62).Milliseconds())) * time.Millisecond
		s.preferred[b.GetJob()] = Preferred{id, now - age}
	}
	return bad
}

// Preferred is which assigner the Distributor takes for preferred, by job. It is good until
// the next call.
func (s *Stream) Preferred() map[string]Preferred { return s.preferred }

// Mark notes that there is something to say of a job. It may be one that was dropped since
// the Distributor spoke of it, and before the job was told.
func (s *Stream) Mark(job string) {
	if !s.jobs[job] {
		s.jobs[job] = true
		s.queue = append(s.queue, job)
	}
}

// Drop forgets a job.
func (s *Stream) Drop(job string) {
	if s.jobs[job] {
		s.queue = slices.DeleteFunc(s.queue, func(name string) bool { return name == job })
	}
	delete(s.jobs, job)
}

// Refuse has the stream of a task ended.
func (s *Stream) Refuse(m *slicerv1.RefuseTask) {
	if len(s.refusals) < maxRefusals {
		s.refusals = append(s.refusals, m)
	}
}

// Prefer takes which assigners are preferred for the jobs of a store, the stores being
// counted from 0. It is said if it is another than before.
func (s *Stream) Prefer(store int, p *slicerv1.Preference) {
	for len(s.prefs) <= store {
		s.prefs, s.told = append(s.prefs, nil), append(s.told, nil)
	}
	s.prefs[store] = nil
	if !proto.Equal(s.told[store], p) {
		s.prefs[store] = p
	}
}

// NewPreference is which assigners there are, to which the jobs are to be added.
func NewPreference(storeID uint64, revision int64, candidates []store.Candidate) *slicerv1.Preference {
	p := &slicerv1.Preference{Revision: revision, StoreId: storeID}
	for _, c := range candidates {
		p.Candidates = append(p.Candidates, &slicerv1.Candidate{AssignerId: c.ID, Address: c.Address, Zone: c.Zone})
	}
	return p
}

// heard is the same for every Distributor.
var heard = &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Acknowledged{Acknowledged: &slicerv1.Acknowledged{}}}

// Pop returns what to say next: a message, or else whatever a job answers to Ready, again
// and again until there is nothing. The hello comes first, then that the Distributor is
// heard, which assigner is preferred, refusals, and the jobs in turn.
func (s *Stream) Pop() (m *slicerv1.AttachResponse, job string, ok bool) {
	if m = s.hello; m != nil {
		s.hello = nil
		return m, "", true
	}
	if s.hears {
		s.hears = false
		return heard, "", true
	}
	for i, p := range s.prefs {
		if p != nil {
			s.prefs[i], s.told[i] = nil, p
			return &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_Preference{Preference: p}}, "", true
		}
	}
	if len(s.refusals) > 0 {
		r := s.refusals[0]
		s.refusals = s.refusals[1:]
		return &slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_RefuseTask{RefuseTask: r}}, "", true
	}
	switch len(s.queue) {
	case 0:
		s.refusals = nil
		return nil, "", false
	case 1:
		job, s.queue = s.queue[0], s.queue[:0] // its room is for the next one
	default:
		job, s.queue = s.queue[0], s.queue[1:]
	}
	s.jobs[job] = false
	return nil, job, true
}
