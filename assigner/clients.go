package assigner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assigner/clientindex"
	"github.com/slicer-project/slicer/assigner/generate"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// maxGrants is how many indexes go into one message: it stays far below 1 MiB.
const maxGrants = 4096

// clients takes in what a Distributor says of a job's clients.
func (s *session) clients(m *slicerv1.Clients) {
	in := s.interestIn(m.GetJob())
	if in == nil {
		return
	}
	said := clientsFromProto(m.GetClients())
	r := in.runner
	r.mu.Lock()
	now := r.a.now()
	r.clients.Report(now.Mono, clientindex.Session(s.id), m.GetComplete(), said)
	r.indexClients(now)
	r.mu.Unlock()
	poke(r.wake) // it may be due at another time now
}

// clientsFromProto reads what comes from the network; clientindex.Table judges it.
func clientsFromProto(ms []*slicerv1.Client) []clientindex.Client {
	out := make([]clientindex.Client, 0, min(len(ms), clientindex.MaxClients))
	for _, m := range ms[:cap(out)] {
		c := clientindex.Client{ID: m.GetClientId(), Index: -1, Disconnected: m.GetDisconnected()}
		c.Age = time.Duration(min(max(m.GetAgeMs(), 0), time.Duration(1<<63-1).Milliseconds())) * time.Millisecond
		if m != nil && m.Index != nil {
			c.Index = int(m.GetIndex())
		}
		out = append(out, c)
	}
	return out
}

// indexClients does what is due for the job's clients, and has the Distributors
// told. It returns when it is to be called again. r.mu is held.
func (r *runner) indexClients(now generate.Now) (wake time.Duration) {
	sessions := r.a.sessions()
	r.attached = r.attached[:0]
	for _, s := range sessions {
		r.attached = append(r.attached, clientindex.Session(s.id))
	}
	r.clients.Prefer(now.Mono, r.viewLocked().IsPreferred())
	r.clients.Sessions(now.Mono, r.attached)
	wake = r.clients.Advance(now.Mono)
	for _, s := range sessions {
		if r.clients.Pending(clientindex.Session(s.id)) {
			s.indexes(r)
		}
	}
	return wake
}

// indexes has the job's clients told their indexes.
func (s *session) indexes(r *runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.jobs[r.name]; in != nil {
		in.indexes = true
		s.enqueueLocked(in)
	}
}

func (s *session) sendIndexes(in *interest) error {
	for {
		in.runner.mu.Lock()
		grants := in.runner.clients.Take(clientindex.Session(s.id), maxGrants)
		in.runner.mu.Unlock()
		if len(grants) == 0 {
			return nil
		}
		m := &slicerv1.ClientIndexes{Job: in.job, Indexes: make([]*slicerv1.ClientIndex, len(grants))}
		for i, g := range grants {
			m.Indexes[i] = &slicerv1.ClientIndex{ClientId: g.ID, Index: uint32(g.Index)}
		}
		if err := s.put(&slicerv1.AttachResponse{Message: &slicerv1.AttachResponse_ClientIndexes{ClientIndexes: m}}); err != nil {
			return err
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
	s := r.clients.Stats()
	r.mu.Unlock()
	gauge(c, clientsDesc, float64(s.Indexed), r.name, "true")
	gauge(c, clientsDesc, float64(s.Clients-s.Indexed), r.name, "false")
	gauge(c, indexesDesc, float64(s.Highest+1), r.name)
	c <- prometheus.MustNewConstMetric(collisionsDesc, prometheus.CounterValue, float64(s.Collisions), r.name)
}
