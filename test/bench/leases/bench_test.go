package leases

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
)

// BenchmarkSessions measures the processor time of etcd, with many sessions that only
// last.
func BenchmarkSessions(b *testing.B) {
	for _, c := range []struct {
		name    string
		fronted bool
	}{{"front", true}, {"direct", false}} {
		if !c.fronted && !*direct {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			n := newBed(b)
			st := n.open()
			var renewals atomic.Int64
			open := func() (lease.Readers, func()) {
				own, err := etcdlease.Open(b.Context(), etcdlease.Config{Endpoints: n.clients})
				for err != nil {
					own, err = etcdlease.Open(b.Context(), etcdlease.Config{Endpoints: n.clients})
				}
				return counted{own, &renewals}, func() { own.Close() }
			}
			if c.fronted {
				n.startFront()
				open = func() (lease.Readers, func()) {
					r, end := n.remote()
					return counted{r, &renewals}, end
				}
			}
			began := time.Now()
			crowd := newCrowd(b, "job", st, *sessions, *ttl, open)
			b.Logf("%d sessions after %s", *sessions, time.Since(began).Round(time.Second))
			time.Sleep(*ttl)
			start, etcd, fronts, before := time.Now(), used(b, n.etcds...), time.Duration(0), renewals.Load()
			if c.fronted {
				fronts = used(b, n.front)
			}
			time.Sleep(*window)
			took := time.Since(start).Seconds()
			b.ReportMetric(100*(used(b, n.etcds...)-etcd).Seconds()/took, "%core-etcd")
			b.ReportMetric(float64(renewals.Load()-before)/took, "renewals/s")
			b.ReportMetric(float64(n.watchers()), "watchers")
			if c.fronted {
				b.ReportMetric(100*(used(b, n.front)-fronts).Seconds()/took, "%core-front")
				b.ReportMetric(float64(connections(b, n.front, n.clients)), "connections")
			}
			lost := 0
			for _, j := range crowd.jobs {
				if j.Belief() == nil {
					lost++
				}
			}
			b.ReportMetric(float64(lost), "without-belief")
			if lost > 0 && c.fronted {
				b.Logf("the front: %s", n.front.LastWords())
			}
			b.ReportMetric(0, "ns/op")
			crowd.end()
		})
	}
}

// watchers is how many etcd has, of one that watches all by itself.
func (n *bed) watchers() (all int) {
	for _, a := range n.clients {
		resp, err := http.Get("http://" + a + "/metrics")
		if err != nil {
			n.b.Fatal(err)
		}
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if v, ok := strings.CutPrefix(s.Text(), "etcd_debugging_mvcc_watcher_total "); ok {
				var count int
				fmt.Sscan(v, &count)
				all += count
			}
		}
		resp.Body.Close()
	}
	return all
}

// BenchmarkRecall measures how long a recall takes, directly and by way of a front, in turns.
func BenchmarkRecall(b *testing.B) {
	const readers = 50
	n := newBed(b)
	st := n.open()
	n.startFront()
	own := newCrowd(b, "direct", st, readers, *ttl, func() (lease.Readers, func()) {
		own := n.open()
		return own, func() {}
	})
	fronted := newCrowd(b, "fronted", st, readers, *ttl, n.remote)
	var took [2][]time.Duration
	for range *changes {
		took[0] = append(took[0], own.advance())
		took[1] = append(took[1], fronted.advance())
	}
	for i, name := range []string{"direct", "front"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds())/1000, "ms-median-"+name)
		b.ReportMetric(float64(took[i][len(took[i])*9/10].Microseconds())/1000, "ms-p90-"+name)
	}
	b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "front/direct")
	b.ReportMetric(0, "ns/op")
	own.end()
	fronted.end()
}
