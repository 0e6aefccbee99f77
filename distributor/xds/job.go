package xds

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

	mu    sync.Mutex
	m     *jobMetrics // nil before there is an assignment: a client can make names up
	tally answers.Tally
	book  *book
}

// Counts are what slicerctl inspect shows of a job.
type Counts struct {
	answers.Counts
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
	return Counts{j.tally.Counts(now), j.book.refusal}
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
	if j.tally.Clients() > 0 {
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
	j.tally.Enter()
	return j
}

func (j *job) leave(refusing bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally.Leave(refusing)
}

// set takes the newest assignment, which several clients may have seen, and asks for the terms,
// under its lock: no client so brings older ones after newer ones.
func (j *job) set(now time.Time, a *assignment.Assignment, terms func() Terms) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := terms()
	if j.m == nil {
		j.m = j.shared.job(j.name)
		j.tally.Publish(&j.m.Series)
	}
	was := j.book.refusal
	if !j.book.set(now, a, t) {
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

// toward is book.toward.
func (j *job) toward(accepted *resource, s style) *resource {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.book.toward(accepted, s)
}

// toArriving is book.toArriving.
func (j *job) toArriving(asks []string, s style) *resource {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.book.toArriving(asks, s)
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
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally.Accepted(was, is)
}

// refused counts a refusal, and logs some.
func (j *job) refused(now time.Time, was bool, client string, k kind, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if unlogged, log := j.tally.Refused(now, was, why); log {
		j.log.Warn("resources refused by an xDS client", "client", client, "refused", k.String(), "reason", why, "others_since_the_last", unlogged)
	}
}
