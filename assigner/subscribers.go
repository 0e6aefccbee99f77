package assigner

import (
	"github.com/prometheus/client_golang/prometheus"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

var (
	subscribersDesc = prometheus.NewDesc(prefix+"subscribers", "Subscribers of a job that this assigner is preferred for, over all Distributors.", []string{"job", "role"}, nil)
	behindDesc      = prometheus.NewDesc(prefix+"subscribers_behind", "Those of them that do not hold the newest generation.", []string{"job", "role"}, nil)
	slowDesc        = prometheus.NewDesc(prefix+"subscribers_slow", "Those of them that have not acknowledged for 5 s what they were sent.", []string{"job"}, nil)
	reachDesc       = prometheus.NewDesc(prefix+"reach_seconds", "From the write of the newest generation until a share (0.5, 0.99, 1) of those that were connected held it; absent until they do.", []string{"job", "role", "share"}, nil)
)

var roleNames = map[slicerv1.Role]string{slicerv1.Role_ROLE_CLERK: "clerk", slicerv1.Role_ROLE_SLICELET: "slicelet"}

// collectProgress shows how far the subscribers of a job are.
func (m *metrics) collectProgress(c chan<- prometheus.Metric, r *runner, newest int64) {
	r.mu.Lock()
	p := r.job.Progress(m.a.now())
	r.mu.Unlock()
	all, behind := make(map[slicerv1.Role]uint32), make(map[slicerv1.Role]uint32)
	for _, h := range p.Holders {
		all[h.Role] += h.Subscribers
		if h.Generation < newest {
			behind[h.Role] += h.Subscribers
		}
	}
	for role, name := range roleNames {
		gauge(c, subscribersDesc, float64(all[role]), r.name, name)
		gauge(c, behindDesc, float64(behind[role]), r.name, name)
	}
	gauge(c, slowDesc, float64(p.SlowTotal), r.name)
	for _, s := range p.Spreads {
		for share, us := range map[string]int64{"0.5": s.P50Us, "0.99": s.P99Us, "1": s.LastUs} {
			if us >= 0 {
				gauge(c, reachDesc, float64(us)/1e6, r.name, roleNames[s.Role], share)
			}
		}
	}
}

var (
	clientsDesc = prometheus.NewDesc(prefix+"clients",
		"Connected clients of jobs that this assigner is preferred for, by whether they have been given an index.", []string{"job", "indexed"}, nil)
	indexesDesc = prometheus.NewDesc(prefix+"client_indexes",
		"Highest client index in use, and 1: above the number of clients by the holes that leavers have left.", []string{"job"}, nil)
	collisionsDesc = prometheus.NewDesc(prefix+"client_index_collisions_total",
		"Clients that had to give up an index because an older one held it.", []string{"job"}, nil)
)

func (m *metrics) collectClients(c chan<- prometheus.Metric, r *runner) {
	r.mu.Lock()
	s := r.job.ClientStats()
	r.mu.Unlock()
	gauge(c, clientsDesc, float64(s.Indexed), r.name, "true")
	gauge(c, clientsDesc, float64(s.Clients-s.Indexed), r.name, "false")
	gauge(c, indexesDesc, float64(s.Highest+1), r.name)
	c <- prometheus.MustNewConstMetric(collisionsDesc, prometheus.CounterValue, float64(s.Collisions), r.name)
}
