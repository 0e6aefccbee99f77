package autosharding

import (
	"log/slog"
	"sync"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

// refusalLog is how often refusals are logged of one job.
const refusalLog = 10 * time.Second

// job is what all clients of one job share.
type job struct {
	name   string
	log    *slog.Logger
	shared *metrics

	mu       sync.Mutex
	m        *jobMetrics // nil before there is an assignment: a client can make names up
	counts   Counts
	nackAt   time.Time
	remarkAt time.Time
	loggedAt time.Time
	unlogged int
	newest   *payload // nil while there is no client
}

// Counts are what slicerctl inspect shows of a job.
type Counts struct {
	// Clients are connected; Refusing are those of them whose last answer was a
	// refusal.
	Clients, Refusing int
	// Acks and Nacks are all since the job came to be served here.
	Acks, Nacks uint64
	// LastNack are the words of the last refusal, and LastNackAge how old they are.
	LastNack    string
	LastNackAge time.Duration
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
	c := j.counts
	if c.Nacks > 0 {
		c.LastNackAge = now.Sub(j.nackAt)
	}
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
	if j.counts.Clients == 0 {
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
	j.counts.Clients++
	if j.m != nil {
		j.m.clients.Inc()
	}
	return j
}

func (j *job) leave(refusing bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts.Clients--; j.counts.Clients == 0 {
		j.newest = nil
	}
	if j.m != nil {
		j.m.clients.Dec()
	}
	j.refusingLocked(refusing, false)
}

// refusingLocked counts a client over.
func (j *job) refusingLocked(was, is bool) {
	switch {
	case is && !was:
		j.counts.Refusing++
		j.m.refusing.Inc()
	case was && !is:
		j.counts.Refusing--
		j.m.refusing.Dec()
	}
}

// payload is a's encoding, one for all clients, or that of a newer one when another
// client has already asked for it.
func (j *job) payload(a *assignment.Assignment, names []naming) *payload {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.m == nil {
		j.m = j.shared.job(j.name)
		j.m.clients.Set(float64(j.counts.Clients))
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
	j.m.acks.Inc()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts.Acks++
	if remark != "" {
		j.m.remarks.Inc()
		j.counts.Remarks++
		j.counts.LastRemark, j.remarkAt = remark, now
	}
	j.refusingLocked(was, false)
}

// refused counts a refusal, and logs some.
func (j *job) refused(now time.Time, was bool, client string, g assignment.Generation, why string) {
	j.m.nacks.Inc()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts.Nacks++
	j.counts.LastNack, j.nackAt = why, now
	j.refusingLocked(was, true)
	if now.Sub(j.loggedAt) < refusalLog {
		j.unlogged++
		return
	}
	j.log.Warn("assignment refused by a client", "client", client, "generation", g, "reason", why, "others_since_the_last", j.unlogged)
	j.loggedAt, j.unlogged = now, 0
}
