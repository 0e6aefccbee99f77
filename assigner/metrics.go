package assigner

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assigner/generate"
	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/loadbalance"
)

// metrics are an assigner's.
type metrics struct {
	a      *Assigner
	reg    prometheus.Registerer
	stores *storeMetrics

	generations, conflicts, decisions, skipped, keyChurn, loadChurn, ahead, deaths, freezes, bytes, early *prometheus.CounterVec
	rejected                                                                                              prometheus.Counter
	roundSeconds                                                                                          prometheus.Histogram

	lease  leaseMetrics
	gauges gaugeDescs

	mu   sync.Mutex                                   // taken after any other
	made map[string]map[madeSeries]prometheus.Counter // by job
}

// leaseMetrics are those of consistent mode.
type leaseMetrics struct {
	changes, held, deposed, lost *prometheus.CounterVec
	step                         *prometheus.HistogramVec
	change                       prometheus.Histogram
}

// gaugeDescs are of what has a current value, which is looked up when asked for.
type gaugeDescs struct {
	tasks, load, imbalance, floor, frozen, generation, preferred, distributors *prometheus.Desc
	wanted, servedCores, servedMemory                                          *prometheus.Desc
}

const prefix = "slicer_assigner_"

func newMetrics(a *Assigner) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels, nil)
	}
	return &metrics{
		a:           a,
		stores:      newStoreMetrics(a),
		made:        make(map[string]map[madeSeries]prometheus.Counter),
		generations: counter("generations_total", "Generations written, by why the round was held.", "job", "reason"),
		conflicts:   counter("conflicts_total", "Writes that lost against another assigner's.", "job"),
		decisions:   counter("decisions_total", "Decisions of rounds that were written, by kind and reason.", "job", "kind", "reason"),
		skipped:     counter("rounds_skipped_total", "Rounds that did nothing for the sake of load, by reason.", "job", "reason"),
		early:       counter("rounds_early_total", "Rounds held at once, because a task carried far more than the last one had foretold.", "job"),
		keyChurn:    counter("key_churn_total", "Share of the keyspace that came to another task, summed over rounds.", "job"),
		loadChurn:   counter("load_churn_total", "Share of the load that came to another task, summed over rounds.", "job"),
		ahead:       counter("generations_ahead_total", "Generations and clocks found to be too far ahead, by whose: clock or stored (more than a day), or reported (more than a minute). They number no generation, and the job goes on.", "job", "whose"),
		deaths:      counter("task_deaths_total", "Tasks declared dead.", "job"),
		freezes:     counter("freezes_total", "Times that the assigner has frozen a job by itself, because too many tasks fell silent at once.", "job"),
		bytes:       counter("assignment_bytes_total", "Bytes of assignments sent to Distributors, by kind: whole or delta.", "job", "kind"),
		rejected:    prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "messages_rejected_total", Help: "Malformed parts of Distributors' messages that were ignored."}),
		roundSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "round_seconds", Help: "How long a round took to work out.", Buckets: prometheus.ExponentialBuckets(.0005, 4, 8)}),
		lease: leaseMetrics{
			changes: counter("lease_changes_total", "Generations that have come in force, in consistent mode.", "job"),
			held:    counter("lease_held_by_others_total", "Attempts to take a job lease that another assigner held.", "job"),
			deposed: counter("lease_deposed_total", "Job leases that were lost.", "job"),
			lost:    counter("lease_sessions_lost_total", "Sessions in a lease store that were lost, and with them all their job leases.", "store"),
			step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: prefix + "lease_step_seconds", Help: "How long a step of a change was called for before it could be carried out, by step.",
				Buckets: prometheus.ExponentialBuckets(.001, 3, 10)}, []string{"step"}),
			change: prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: prefix + "lease_change_seconds", Help: "How long a change took from the stored generation to its bridge's end.",
				Buckets: prometheus.ExponentialBuckets(.002, 3, 10)}),
		},
		gauges: gaugeDescs{
			tasks:        gauge("tasks", "Tasks of jobs that this assigner is preferred for, by state.", "job", "state"),
			load:         gauge("load", "Load of all tasks of a job together, in the units of its load metric a second.", "job"),
			imbalance:    gauge("imbalance_ratio", "Largest task load over the mean, by capacity; 0 without load.", "job"),
			floor:        gauge("imbalance_floor_ratio", "What no assignment of whole keys goes below, as the last round saw it.", "job"),
			wanted:       gauge("wanted_tasks", "Tasks that a job would need for its target_utilization; absent while its tasks tell no CPU.", "job"),
			servedCores:  gauge("served_cpu_cores", "CPU that the tasks of a job use together, in cores: what Slicer's own is to be compared with.", "job"),
			servedMemory: gauge("served_memory_bytes", "Resident memory of the tasks of a job together.", "job"),
			frozen:       gauge("frozen", "1 while a job is frozen: by the assigner, because too many tasks fell silent at once, or by an operator.", "job", "by"),
			generation:   gauge("generation", "Newest stored generation of a job that is known here.", "job"),
			preferred:    gauge("preferred_jobs", "Jobs that this assigner is preferred for and can decide for: it is registered in their store, and can write there."),
			distributors: gauge("distributors", "Distributors that are attached."),
		},
	}
}

func (m *metrics) vectors() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.generations, m.conflicts, m.decisions, m.skipped, m.keyChurn, m.loadChurn, m.ahead, m.deaths, m.freezes, m.bytes, m.early,
		m.lease.changes, m.lease.held, m.lease.deposed, m.lease.lost}
}

func (m *metrics) register(r prometheus.Registerer, id string) error {
	if r == nil {
		return nil
	}
	m.reg = prometheus.WrapRegistererWith(prometheus.Labels{"assigner": id}, r)
	return m.reg.Register(m)
}

func (m *metrics) unregister() {
	if m.reg != nil {
		m.reg.Unregister(m)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(c)
	}
	m.stores.Describe(c)
	m.rejected.Describe(c)
	m.roundSeconds.Describe(c)
	m.lease.step.Describe(c)
	m.lease.change.Describe(c)
	for _, d := range []*prometheus.Desc{subscribersDesc, behindDesc, slowDesc, reachDesc, clientsDesc, indexesDesc, collisionsDesc, m.gauges.tasks, m.gauges.load, m.gauges.imbalance, m.gauges.floor, m.gauges.frozen, m.gauges.generation, m.gauges.preferred, m.gauges.distributors, m.gauges.wanted, m.gauges.servedCores, m.gauges.servedMemory} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(c)
	}
	m.stores.Collect(c)
	m.rejected.Collect(c)
	m.roundSeconds.Collect(c)
	m.lease.step.Collect(c)
	m.lease.change.Collect(c)
	mine := 0
	for _, r := range m.a.runners() {
		if m.collectJob(c, r) && r.decides() {
			mine++
		}
	}
	gauge(c, m.gauges.preferred, float64(mine))
	gauge(c, m.gauges.distributors, float64(len(m.a.sessions())))
}

func gauge(c chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (m *metrics) collectJob(c chan<- prometheus.Metric, r *runner) (mine bool) {
	states := map[assignment.TaskState]int{
		assignment.TaskStarting: 0, assignment.TaskRunning: 0, assignment.TaskDraining: 0, assignment.TaskDead: 0,
	}
	var load, imbalance, floor, cores, memory float64
	wanted := 0
	frozen := map[string]float64{"assigner": 0, "operator": 0}
	var stored *assignment.Assignment
	r.ask(func(c generate.View) {
		stored, mine = c.Stored(), c.IsPreferred()
		if !mine {
			return
		}
		for _, t := range c.Tasks() {
			states[t.Task.State]++
			load += t.Load
			if t.Task.State != assignment.TaskDead {
				cores += t.Cores
				memory += t.Memory
			}
		}
		wanted = c.WantedTasks()
		imbalance, floor = c.Imbalance(), c.Floor()
		if c.Frozen() {
			frozen["assigner"] = 1
		}
		if c.Overrides().Freeze != nil {
			frozen["operator"] = 1
		}
	})
	newest := int64(0)
	if stored != nil {
		newest = int64(stored.Generation())
		gauge(c, m.gauges.generation, float64(newest), r.name)
	}
	if !mine {
		return false
	}
	m.collectClients(c, r)
	m.collectProgress(c, r, newest)
	for s, n := range states {
		gauge(c, m.gauges.tasks, float64(n), r.name, s.String())
	}
	gauge(c, m.gauges.load, load, r.name)
	gauge(c, m.gauges.servedCores, cores, r.name)
	gauge(c, m.gauges.servedMemory, memory, r.name)
	if wanted > 0 { // an autoscaler leaves a job alone of which it knows nothing
		gauge(c, m.gauges.wanted, float64(wanted), r.name)
	}
	gauge(c, m.gauges.imbalance, imbalance, r.name)
	gauge(c, m.gauges.floor, floor, r.name)
	for by, v := range frozen {
		gauge(c, m.gauges.frozen, v, r.name, by)
	}
	return true
}

// begin makes the counters that alerts watch: a counter's increase is not seen if its
// series begins with it.
func (m *metrics) begin(job string) {
	m.of(m.deaths, job)
	m.of(m.freezes, job)
}

// observe counts what has come up in a job.
func (m *metrics) observe(job string, e generate.Outputs) {
	if e.Conflicts > 0 {
		m.of(m.conflicts, job).Add(float64(e.Conflicts))
	}
	if e.Held > 0 {
		m.of(m.lease.held, job).Add(float64(e.Held))
	}
	if e.Deposed > 0 {
		m.of(m.lease.deposed, job).Add(float64(e.Deposed))
	}
	for _, took := range e.Changes {
		m.of(m.lease.changes, job).Inc()
		m.lease.change.Observe(took.Seconds())
	}
	for _, w := range e.Ahead {
		m.of(m.ahead, job, w).Inc()
	}
	for _, x := range e.Members {
		switch x.Kind {
		case membership.Dead:
			m.of(m.deaths, job).Inc()
		case membership.Frozen:
			m.of(m.freezes, job).Inc()
		}
	}
	for _, r := range e.Rounds {
		if r.Why == generate.ReasonEarly {
			m.of(m.early, job).Inc()
		}
		if r.Label != "" {
			m.of(m.skipped, job, r.Label).Inc()
		}
		if r.Generation == 0 {
			continue
		}
		m.of(m.generations, job, string(r.Why)).Inc()
		m.of(m.keyChurn, job).Add(max(r.Stats.KeyChurn, 0))
		m.of(m.loadChurn, job).Add(max(r.Stats.LoadChurn, 0))
		type what struct {
			kind   loadbalance.Kind
			reason loadbalance.Reason
		}
		n := make(map[what]int)
		for _, d := range r.Decisions {
			n[what{d.Kind, d.Reason}]++
		}
		for w, k := range n {
			m.of(m.decisions, job, string(w.kind), string(w.reason)).Add(float64(k))
		}
	}
}

func (m *metrics) sent(job string, f *wire.Frame) {
	kind := "whole"
	if f.Trailer.GetBase() != 0 {
		kind = "delta"
	}
	m.of(m.bytes, job, kind).Add(float64(len(f.Data)))
}

// madeSeries is one series of a job: the vector, and the labels after the job's name.
type madeSeries struct {
	of     *prometheus.CounterVec
	labels [2]string
	n      int // of labels
}

// of is a job's series. It is remembered, so that forget need not look for it among
// those of all other jobs.
func (m *metrics) of(v *prometheus.CounterVec, job string, labels ...string) prometheus.Counter {
	key := madeSeries{of: v, n: len(labels)}
	copy(key.labels[:], labels)
	m.mu.Lock()
	defer m.mu.Unlock()
	made := m.made[job]
	if made == nil {
		made = make(map[madeSeries]prometheus.Counter)
		m.made[job] = made
	}
	c, ok := made[key]
	if !ok {
		c = v.WithLabelValues(append([]string{job}, labels...)...)
		made[key] = c
	}
	return c
}

// forget drops what is labelled with a job that is no more.
func (m *metrics) forget(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.made[job] {
		s.of.DeleteLabelValues(append([]string{job}, s.labels[:s.n]...)...)
	}
	delete(m.made, job)
}
