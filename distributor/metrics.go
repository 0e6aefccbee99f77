package distributor

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/fanout"
	"github.com/slicer-project/slicer/distributor/internal/series"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// metrics are what /metrics shows of a Distributor. All names begin with
// slicer_distributor_.
type metrics struct {
	vectors     vectors
	ended       *prometheus.CounterVec
	assigners   prometheus.Gauge
	tier        prometheus.Gauge
	upstreams   prometheus.Gauge
	downstreams prometheus.Gauge
	attempts    *prometheus.CounterVec
	proxied     *prometheus.CounterVec
	waiting     *prometheus.GaugeVec
	turns       prometheus.Gauge // of waiting
	sentAway    prometheus.Counter
	setUps      prometheus.Gauge
	dropped     *prometheus.CounterVec

	reg        prometheus.Registerer // with this Distributor's label; nil for none
	unregister func()

	mu    sync.Mutex            // taken after any other
	shown map[string]*jobSeries // by job
}

// vectors are the metrics with a series for each job.
type vectors struct {
	subs           *prometheus.GaugeVec
	gen            *prometheus.GaugeVec
	slices         *prometheus.GaugeVec
	lag            *prometheus.GaugeVec
	slow           *prometheus.GaugeVec
	slowest        *prometheus.GaugeVec
	unacknowledged *prometheus.GaugeVec
	sent           *prometheus.CounterVec
	sentBytes      *prometheus.CounterVec
	encodes        *prometheus.CounterVec
	refusals       *prometheus.CounterVec
	reported       *prometheus.CounterVec
	received       *prometheus.CounterVec
	bases          *prometheus.CounterVec
	convergence    *prometheus.HistogramVec
	reach          *prometheus.HistogramVec
}

func newMetrics(id string, reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{shown: make(map[string]*jobSeries)}
	var all []prometheus.Collector
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_distributor_" + name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_distributor_" + name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	m.vectors.subs = gauge("subscribers", "Connected subscribers.", "job", "role")
	m.vectors.gen = gauge("generation", "Newest generation held: Unix milliseconds at which it was made.", "job")
	m.vectors.slices = gauge("slices", "Slices of the newest assignment held.", "job")
	m.vectors.lag = gauge("subscribers_behind", "Clerks and slicelets that do not hold the newest assignment yet.", "job")
	m.vectors.slow = gauge("subscribers_slow", "Subscribers that have not acknowledged what they were sent for 5 s.", "job")
	m.vectors.slowest = gauge("slow_subscriber_seconds", "For how long a slow subscriber's acknowledgement has been waited for: the 16 slowest of each job.", "job", "subscriber")
	m.vectors.unacknowledged = gauge("unacknowledged", "1 while the job's preferred assigner does not hear this Distributor, so that slicelets look for another.", "job")
	m.vectors.sent = counter("updates_total", "Assignments sent to subscribers: whole, compressed (whole, too), as a delta, or the part for a task.", "job", "kind")
	m.vectors.sentBytes = counter("update_bytes_total", "Encoded bytes of the assignments sent to subscribers.", "job", "kind")
	m.vectors.encodes = counter("encodes_total", "Encodings made of assignments: at most one of each generation whole, one compressed, and one for each base that a delta is sent on; of parts one for each slicelet.", "job", "kind")
	m.vectors.refusals = counter("refusals_total", "Assignments that subscribers would not take.", "job")
	m.vectors.reported = counter("reports_total", "Reports that came from slicelets.", "job")
	m.ended = counter("streams_ended_total", "Subscribers' streams that have ended, by gRPC status.", "code")
	m.vectors.received = counter("assignments_total", "Assignments that came from assigners, by what became of them.", "job", "verdict")
	m.vectors.bases = counter("bases_total", "Older assignments that were asked for and came, for deltas to stand on.", "job")
	m.attempts = counter("assigner_attempts_total", "Attempts to attach to an assigner, by outcome.", "outcome")
	m.proxied = counter("admin_calls_total", "Administrative calls passed on to assigners, by gRPC status.", "method", "code")
	m.waiting = gauge("subscribers_waiting", "Subscribers that wait, for their turn to be sent a whole assignment.", "for")
	m.turns = m.waiting.WithLabelValues("turn")
	m.dropped = counter("connections_dropped_total", "Connections dropped before they were set up, or closed after: silent (nothing came for 10 s, or too many such), many (too many wait, most of them from its address) or streams (1,000 calls were refused on it for their number).", "why")
	m.sentAway = prometheus.NewCounter(prometheus.CounterOpts{Name: "slicer_distributor_sent_away_total", Help: "Subscribers that were let go to another Distributor, since this one had far more than its share."})
	m.vectors.convergence = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "slicer_distributor_convergence_seconds",
		Help:    "From the arrival of an assignment until all connected clerks and slicelets hold it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, []string{"job"})
	m.vectors.reach = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "slicer_distributor_reach_seconds",
		Help:    "From the writing of an assignment until a subscriber that was connected when it came holds it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, []string{"job", "role"})
	plain := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "slicer_distributor_" + name, Help: help})
		all = append(all, g)
		return g
	}
	m.assigners = plain("assigners", "Assigners attached to, in the second tier through other Distributors.")
	m.tier = plain("tier", "1, or 2 of one that is attached to other Distributors instead of to assigners.")
	m.upstreams = plain("upstreams", "Distributors of the first tier that this one of the second is attached to.")
	m.downstreams = plain("downstreams", "Distributors of the second tier that are attached to this one of the first.")
	m.setUps = plain("setups", "Connections that are being set up: accepted, and their subscriber not served yet.")
	all = append(all, m.vectors.convergence, m.vectors.reach, m.sentAway)
	if reg != nil {
		m.reg = prometheus.WrapRegistererWith(prometheus.Labels{"distributor": id}, reg)
	}
	var err error
	if m.unregister, err = series.Register(m.reg, all...); errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return nil, &assignment.FieldError{Field: "ID", Value: id, Allowed: "one that no other Distributor on the same Registerer has"}
	}
	return m, err
}

// jobSeries are the series of one job, looked up once.
type jobSeries struct {
	series.Set
	refs                       int // uses of the series, guarded by metrics.mu
	roles                      [fanout.NumRoles]prometheus.Gauge
	gen, slices, lag, slowSubs prometheus.Gauge
	unacknowledged             prometheus.Gauge
	sent, sentBytes, encodes   map[string]prometheus.Counter
	refusals, reports, bases   prometheus.Counter
	convergence                prometheus.Observer
	reach                      [fanout.NumRoles]prometheus.Observer
}

func (m *metrics) newSeries(name string) *jobSeries {
	s := &jobSeries{sent: make(map[string]prometheus.Counter), sentBytes: make(map[string]prometheus.Counter), encodes: make(map[string]prometheus.Counter)}
	gauge := func(v *prometheus.GaugeVec) prometheus.Gauge { return series.Add[prometheus.Gauge](&s.Set, v, name) }
	counter := func(v *prometheus.CounterVec, labels ...string) prometheus.Counter {
		return series.Add[prometheus.Counter](&s.Set, v, append([]string{name}, labels...)...)
	}
	s.gen, s.slices, s.lag, s.slowSubs, s.unacknowledged = gauge(m.vectors.gen), gauge(m.vectors.slices), gauge(m.vectors.lag), gauge(m.vectors.slow), gauge(m.vectors.unacknowledged)
	s.refusals, s.reports, s.bases = counter(m.vectors.refusals), counter(m.vectors.reported), counter(m.vectors.bases)
	s.convergence = series.Add[prometheus.Observer](&s.Set, m.vectors.convergence, name)
	for role, label := range map[slicerv1.Role]string{
		slicerv1.Role_ROLE_CLERK: "clerk", slicerv1.Role_ROLE_SLICELET: "slicelet", slicerv1.Role_ROLE_OBSERVER: "observer",
	} {
		s.roles[role] = series.Add[prometheus.Gauge](&s.Set, m.vectors.subs, name, label)
		if role != slicerv1.Role_ROLE_OBSERVER {
			s.reach[role] = series.Add[prometheus.Observer](&s.Set, m.vectors.reach, name, label)
		}
	}
	for _, kind := range []string{fanout.KindWhole, fanout.KindCompressed, fanout.KindDelta, fanout.KindPart} {
		s.sent[kind], s.sentBytes[kind], s.encodes[kind] = counter(m.vectors.sent, kind), counter(m.vectors.sentBytes, kind), counter(m.vectors.encodes, kind)
	}
	for _, v := range []fanout.Verdict{fanout.VerdictAccepted, fanout.VerdictStale, fanout.VerdictForeign, fanout.VerdictMalformed} {
		series.Expect[prometheus.Counter](&s.Set, m.vectors.received, name, string(v))
	}
	return s
}

// jobMetrics count for one job. They have series only once a store is known to have the
// job: a caller can make names up, and series are expensive.
type jobMetrics struct {
	parent *metrics
	job    string
	series atomic.Pointer[jobSeries] // nil before show

	mu               sync.Mutex
	connected        [fanout.NumRoles]int
	isUnacknowledged bool
	worst            []fanout.Slow // shown as slowest
}

func (m *metrics) job(name string) *jobMetrics { return &jobMetrics{parent: m, job: name} }

// show makes the series, unless they are there.
func (j *jobMetrics) show() {
	if j.series.Load() != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.series.Load() != nil {
		return
	}
	m := j.parent
	m.mu.Lock()
	s := m.shown[j.job]
	if s == nil {
		s = m.newSeries(j.job)
		m.shown[j.job] = s
	}
	s.refs++
	m.mu.Unlock()
	for role, n := range j.connected {
		if g := s.roles[role]; g != nil {
			g.Add(float64(n))
		}
	}
	setUnacknowledged(s, j.isUnacknowledged)
	j.series.Store(s)
}

// drop forgets the series of a job that is not served any more, unless another job of
// its name has come in its place. It takes no other locks than those of metrics.
func (j *jobMetrics) drop() {
	s := j.series.Load()
	if s == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.showSlowestLocked(time.Time{}, nil)
	m := j.parent
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.refs--; s.refs == 0 {
		delete(m.shown, j.job)
		s.Drop()
	}
}

func (j *jobMetrics) Subscribers(role slicerv1.Role, by int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.connected[role] += by
	if s := j.series.Load(); s != nil {
		s.roles[role].Add(float64(by))
	}
}

func (j *jobMetrics) Unacknowledged(unacknowledged bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.isUnacknowledged = unacknowledged
	if s := j.series.Load(); s != nil {
		setUnacknowledged(s, unacknowledged)
	}
}

func setUnacknowledged(s *jobSeries, unacknowledged bool) {
	s.unacknowledged.Set(0)
	if unacknowledged {
		s.unacknowledged.Set(1)
	}
}

// Slow shows the subscribers that are slow now in place of those shown before.
func (j *jobMetrics) Slow(now time.Time, total int, worst []fanout.Slow) {
	s := j.series.Load()
	if s == nil {
		return
	}
	s.slowSubs.Set(float64(total))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.showSlowestLocked(now, worst)
}

// showSlowestLocked is called with j.mu held.
func (j *jobMetrics) showSlowestLocked(now time.Time, worst []fanout.Slow) {
	for _, s := range j.worst {
		j.parent.vectors.slowest.DeleteLabelValues(j.job, s.Name)
	}
	for _, s := range worst {
		j.parent.vectors.slowest.WithLabelValues(j.job, s.Name).Set(now.Sub(s.Since).Seconds())
	}
	j.worst = worst
}

func (j *jobMetrics) Behind(n int) {
	if s := j.series.Load(); s != nil {
		s.lag.Set(float64(n))
	}
}

func (j *jobMetrics) Converged(d time.Duration) {
	if s := j.series.Load(); s != nil {
		s.convergence.Observe(d.Seconds())
	}
}

func (j *jobMetrics) encoded(kind string) {
	if s := j.series.Load(); s != nil {
		s.encodes[kind].Inc()
	}
}

func (j *jobMetrics) Base() {
	if s := j.series.Load(); s != nil {
		s.bases.Inc()
	}
}

func (j *jobMetrics) Refused() {
	if s := j.series.Load(); s != nil {
		s.refusals.Inc()
	}
}

func (j *jobMetrics) Report() {
	if s := j.series.Load(); s != nil {
		s.reports.Inc()
	}
}

func (j *jobMetrics) MovedAway() { j.parent.sentAway.Inc() }

func (j *jobMetrics) Reached(role slicerv1.Role, took time.Duration) {
	if s := j.series.Load(); s != nil && s.reach[role] != nil {
		s.reach[role].Observe(took.Seconds())
	}
}

func (j *jobMetrics) Generation(a *assignment.Assignment) {
	if s := j.series.Load(); s != nil {
		s.gen.Set(float64(a.Generation()))
		s.slices.Set(float64(a.NumSlices()))
	}
}

func (j *jobMetrics) updates(kind string, size int) {
	if s := j.series.Load(); s != nil {
		s.sent[kind].Inc()
		s.sentBytes[kind].Add(float64(size))
	}
}

// verdict counts what became of an assignment, which only an assigner sends whose
// store has the job.
func (j *jobMetrics) verdict(v fanout.Verdict) {
	j.show()
	j.parent.vectors.received.WithLabelValues(j.job, string(v)).Inc()
}
