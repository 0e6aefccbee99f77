package autosharding

import (
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/answers"
)

// job is what all clients of one job share.
type job struct {
	name   string
	log    *slog.Logger
	shared *metrics

	mu       sync.Mutex
	m        *jobMetrics // nil before there is an assignment: a client can make names up
	tally    answers.Tally
	remarks  Counts // of remarks alone
	remarkAt time.Time
	newest   *payload // nil while there is no client
}

// Counts are what slicerctl inspect shows of a job.
type Counts struct {
	answers.Counts
	// Remarks are the acknowledgements with a remark; LastRemark is the newest of these,
	// and LastRemarkAge how old it is.
	Remarks       uint64
	LastRemark    string
	LastRemarkAge time.Duration
}

// Counts are those of a job; zero if no client has asked for it.
func (s *Service) Counts(now time.Time, name string) Counts {
	s.mu.Lock()
	j := s.jobs[name]
	s.mu.Unlock()
	if j == nil {
		return Counts{}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.remarks
	c.Counts = j.tally.Counts(now)
	if c.Remarks > 0 {
		c.LastRemarkAge = now.Sub(j.remarkAt)
	}
	return c
}

// Forget lets go of a job that has no clients, and of its counts.
func (s *Service) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tally.Clients() == 0 {
		delete(s.jobs, name)
		if j.m != nil {
			j.m.Drop()
		}
	}
}

// enterJob counts a client in.
func (s *Service) enterJob(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	if j == nil {
		j = &job{name: name, log: s.log.With("job", name), shared: s.metrics}
		s.jobs[name] = j
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally.Enter()
	return j
}

func (j *job) leave(refusing bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally.Leave(refusing)
	if j.tally.Clients() == 0 {
		j.newest = nil
	}
}

// payload is a's encoding, one for all clients, or that of a newer one when another
// client has already asked for it.
func (j *job) payload(a *assignment.Assignment, names []naming) *payload {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.m == nil {
		j.m = j.shared.job(j.name)
		j.tally.Publish(&j.m.Series)
	}
	if p := j.newest; p == nil || p.a.StoreID() != a.StoreID() || p.a.Generation() < a.Generation() {
		j.newest = newPayload(a, names, j.m.encodes.Inc)
	}
	return j.newest
}

// reported counts a load report; before there is an assignment it is of no use.
func (j *job) reported(outcome string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.m != nil {
		j.m.reports[outcome].Inc()
	}
}

func (j *job) sent(bytes int) { j.m.sentBytes.Add(float64(bytes)) }

func (j *job) accepted(now time.Time, was bool, remark string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally.Accepted(was, false)
	if remark != "" {
		j.m.remarks.Inc()
		j.remarks.Remarks++
		j.remarks.LastRemark, j.remarkAt = remark, now
	}
}

// refused counts a refusal, and logs some.
func (j *job) refused(now time.Time, was bool, client string, g assignment.Generation, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if unlogged, log := j.tally.Refused(now, was, why); log {
		j.log.Warn("assignment refused by a client", "client", client, "generation", g, "reason", why, "others_since_the_last", unlogged)
	}
}
