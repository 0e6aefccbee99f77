package xds

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
	loggedAt time.Time
	unlogged int
	book     *book
}

// Counts are what slicerctl inspect shows of a job.
type Counts struct {
	// Clients are connected; Refusing are those of them that have refused the last answer of
	// some type.
	Clients, Refusing int
	// Acks and Nacks are all since the job came to be served here.
	Acks, Nacks uint64
	// LastNack are the words of the last refusal, and LastNackAge how old they are.
	LastNack    string
	LastNackAge time.Duration
	// Refused says why the job's clients are not served, "" if they are.
	Refused string
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
	c.Refused = j.book.refusal
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
	if j.counts.Clients > 0 {
		return
	}
	delete(s.jobs, name)
	if j.m != nil {
		j.m.Drop()
	}
}

// enterJob counts a client in.
func (s *Service) enterJob(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	if j == nil {
		j = &job{name: name, log: s.log.With("job", name), shared: s.metrics, book: newBook(name)}
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
	j.counts.Clients--
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

// set takes the newest assignment, which several clients may have seen.
func (j *job) set(now time.Time, a *assignment.Assignment, consistent bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.m == nil {
		j.m = j.shared.job(j.name)
		j.m.clients.Set(float64(j.counts.Clients))
	}
	was := j.book.refusal
	if !j.book.set(now, a, consistent) {
		return
	}
	j.m.renders.Inc()
	switch is := j.book.refusal; {
	case is == was:
	case is != "":
		j.m.refused.Set(1)
		j.log.Warn("xDS clients are not served: a job like this needs clerks, slicerproxy or clients of gRPC's auto-sharding protocol", "reason", is)
	default:
		j.m.refused.Set(0)
		j.log.Info("xDS clients are served again")
	}
}

// find is book.find.
func (j *job) find(now time.Time, k kind, name string, f flavor, own func(a *assignment.Assignment) *resource) (*resource, verdict) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.book.find(now, k, name, f, func() *resource { return own(j.book.a) })
}

// holds is the generation whose routes a client has that has accepted r.
func (j *job) holds(r *resource, s style) assignment.Generation {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.book.refusal == "" && r == j.book.routesBy(s) {
		return j.book.a.Generation()
	}
	return r.gen
}

func (j *job) sent(bytes int) {
	j.m.sent.Inc()
	j.m.sentBytes.Add(float64(bytes))
}

func (j *job) accepted(was, is bool) {
	j.m.acks.Inc()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts.Acks++
	j.refusingLocked(was, is)
}

// refused counts a refusal, and logs some.
func (j *job) refused(now time.Time, was bool, client string, k kind, why string) {
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
	j.log.Warn("resources refused by an xDS client", "client", client, "refused", k.String(), "reason", why, "others_since_the_last", j.unlogged)
	j.loggedAt, j.unlogged = now, 0
}
