// Package answers counts what clients of a job say to what they are sent: that they take it, or
// refuse it. It is for protocols of other makers' clients, of which each has its own metrics.
package answers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logEvery is how often refusals are logged of one job.
const logEvery = 10 * time.Second

// Counts are what slicerctl inspect shows of a job.
type Counts struct {
	// Clients are connected; Refusing are those of them whose last answer, or that of some
	// type, was a refusal.
	Clients, Refusing int
	// Acks and Nacks are all since the job came to be served here.
	Acks, Nacks uint64
	// LastNack are the words of the last refusal, and LastNackAge how old they are.
	LastNack    string
	LastNackAge time.Duration
}

// Series are the metrics of the same.
type Series struct {
	Clients, Refusing prometheus.Gauge
	Acks, Nacks       prometheus.Counter
}

// Tally counts. The zero value has no clients and no metrics. It is not safe for concurrent use.
type Tally struct {
	counts   Counts
	series   *Series
	nackAt   time.Time
	loggedAt time.Time
	unlogged int
}

// Publish has it keep metrics from now on. Before it clients may only come and leave.
func (t *Tally) Publish(s *Series) {
	t.series = s
	s.Clients.Set(float64(t.counts.Clients))
}

// Counts are those at a time.
func (t *Tally) Counts(now time.Time) Counts {
	c := t.counts
	if c.Nacks > 0 {
		c.LastNackAge = now.Sub(t.nackAt)
	}
	return c
}

// Clients are connected.
func (t *Tally) Clients() int { return t.counts.Clients }

// Enter counts a client in.
func (t *Tally) Enter() {
	t.counts.Clients++
	if t.series != nil {
		t.series.Clients.Inc()
	}
}

// Leave counts a client out, which has counted as one that refuses or not.
func (t *Tally) Leave(refusing bool) {
	t.counts.Clients--
	if t.series != nil {
		t.series.Clients.Dec()
	}
	t.over(refusing, false)
}

// Accepted counts that a client takes what it was sent. was and is say whether it counts as one
// that refuses.
func (t *Tally) Accepted(was, is bool) {
	t.counts.Acks++
	t.series.Acks.Inc()
	t.over(was, is)
}

// Refused counts a refusal. It returns whether to log it, and how many were not logged since the
// last that was.
func (t *Tally) Refused(now time.Time, was bool, why string) (unlogged int, log bool) {
	t.counts.Nacks++
	t.series.Nacks.Inc()
	t.counts.LastNack, t.nackAt = why, now
	t.over(was, true)
	if now.Sub(t.loggedAt) < logEvery {
		t.unlogged++
		return 0, false
	}
	unlogged = t.unlogged
	t.loggedAt, t.unlogged = now, 0
	return unlogged, true
}

// over counts a client that came to refuse, or does no more.
func (t *Tally) over(was, is bool) {
	switch {
	case is && !was:
		t.counts.Refusing++
		t.series.Refusing.Inc()
	case was && !is:
		t.counts.Refusing--
		t.series.Refusing.Dec()
	}
}
