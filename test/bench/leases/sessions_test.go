package leases

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// BenchmarkSessions measures what many sessions that only last cost etcd and a front, in
// processor time and connections, and directly after it what as many cost an etcd that
// slicelets speak to themselves.
func BenchmarkSessions(b *testing.B) {
	var through, own cost
	if *fronted {
		through = measure(b, true)
		b.ReportMetric(through.etcd, "%core-etcd-front")
		b.ReportMetric(through.front, "%core-front")
		b.ReportMetric(through.memory, "MB-front")
		b.ReportMetric(float64(through.connections), "connections-front")
		b.ReportMetric(float64(through.watchers), "watchers-front")
		b.ReportMetric(through.renewals, "renewals/s-front")
		b.ReportMetric(float64(through.without), "without-belief-front")
	}
	if *direct {
		own = measure(b, false)
		b.ReportMetric(own.etcd, "%core-etcd-direct")
		b.ReportMetric(float64(own.connections), "connections-direct")
		b.ReportMetric(float64(own.watchers), "watchers-direct")
		b.ReportMetric(own.renewals, "renewals/s-direct")
		b.ReportMetric(float64(own.without), "without-belief-direct")
	}
	if *fronted && *direct {
		b.ReportMetric(through.etcd/own.etcd, "etcd-front/direct")
	}
	b.ReportMetric(0, "ns/op")
}

// cost is what sessions cost.
type cost struct {
	etcd, front float64 // per cent of a core
	memory      float64 // of the front, in MB
	connections int     // of etcd: the front's, or those of the slicelets
	watchers    int     // of the job's records
	renewals    float64 // a second
	without     int     // slicelets that believe in nothing
}

func measure(b *testing.B, fronted bool) (c cost) {
	b.Helper()
	n := newBed(b)
	st := n.open()
	w, err := st.OpenWriter(b.Context(), lease.MaxTTL)
	if err != nil {
		b.Fatal(err)
	}
	token, err := w.Lead(b.Context(), fleetJob)
	if err == nil {
		_, err = lease.Advance(b.Context(), w, lease.Change{Job: fleetJob, Token: token, Wanted: 1})
	}
	if err != nil {
		b.Fatal(err)
	}
	// Once it has resigned the assigner watches nothing.
	if err := w.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := fleetConfig{Number: *sessions, TTL: *ttl}
	if fronted {
		n.startFront()
		cfg.Front = n.addr
	} else {
		cfg.Etcd = n.clients
	}
	began := time.Now()
	fleets := startFleets(b, cfg)
	b.Logf("%d sessions after %s", *sessions, time.Since(began).Round(time.Second))
	time.Sleep(*ttl)

	start, etcd, before := time.Now(), used(b, n.etcds...), ask(b, fleets)
	var front time.Duration
	if fronted {
		front = used(b, n.front)
	}
	time.Sleep(*window)
	took := time.Since(start).Seconds()
	c.etcd = 100 * (used(b, n.etcds...) - etcd).Seconds() / took
	if fronted {
		c.front = 100 * (used(b, n.front) - front).Seconds() / took
		c.memory = resident(b, n.front)
		c.connections = connections(b, n.front, n.clients)
	}
	after := ask(b, fleets)
	c.renewals, c.without, c.watchers = float64(after.Renewals-before.Renewals)/took, after.Without, n.watchers()
	for _, f := range fleets {
		if !fronted {
			c.connections += connections(b, f.Process, n.clients)
		}
		f.Kill()
	}
	if c.without > 0 && fronted {
		b.Logf("the front: %s", n.front.LastWords())
	}
	for _, p := range n.etcds {
		p.Kill()
	}
	if fronted {
		n.front.Kill()
	}
	return c
}
