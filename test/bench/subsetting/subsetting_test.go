package subsetting

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/loadbalance/subset"
)

// scale is how much there is of everything: clients, servers, servers when there
// are more, and the size of a subset.
type scale struct{ clients, before, more, size int }

// TestConnections is the package's measurement, in small.
func TestConnections(t *testing.T) {
	t.Parallel()
	connections(t, scale{clients: 50, before: 100, more: 110, size: 10})
}

// BenchmarkConnections is the measurement: it takes a minute.
//
//	go test ./test/bench/subsetting -run '^$' -bench Connections -benchtime 1x -v
func BenchmarkConnections(b *testing.B) {
	for b.Loop() {
		connections(b, scale{clients: 200, before: 200, more: 220, size: 20})
	}
}

func connections(tb testing.TB, c scale) {
	f := newPlainFleet(tb, c)
	up, down := f.measure()
	// The article's spike: most of all connections, when a tenth of servers is added.
	held := f.clients * f.size
	if up.imagined < held/2 || up.imagined < 4*up.real || down.imagined < held/2 {
		tb.Errorf("deterministic subsetting would have dropped only %d and %d of %d", up.imagined, down.imagined, held)
	}
}

// TestConnectionsOfGRPC is the same with clients of package clerkgrpc, and fewer of
// everything, as these connections cost more to make.
func TestConnectionsOfGRPC(t *testing.T) {
	t.Parallel()
	newGRPCFleet(t, scale{clients: 40, before: 40, more: 44, size: 8}).measure()
}

// dropped is how many connections ended at the servers that stayed, and how many
// would have with deterministic subsetting.
type dropped struct{ real, imagined int }

// measure runs the clients while the servers become more and fewer again.
func (f *fleet) measure() (up, down dropped) {
	f.Helper()
	began := time.Now()
	metrics, clerks, end := f.connect()
	defer end()
	before, after := f.promised(f.before), f.promised(f.more)
	f.settle(clerks, before)
	ready := time.Since(began)
	most := 0
	for _, s := range f.servers {
		most = max(most, s.open())
	}
	utilization := float64((f.clients*f.size+f.before-1)/f.before) / float64(most)
	if want := subset.Utilization(before, subset.Dense(f.before)); utilization != want {
		f.Errorf("utilization %.3f, the algorithm promises %.3f", utilization, want)
	}

	zero := f.dropped()
	f.start(f.servers[f.before:])
	f.settle(clerks, after)
	up = f.dropped().since(zero)

	zero = f.dropped()
	f.drain(f.servers[f.before:])
	f.settle(clerks, before)
	down = f.dropped().since(zero)

	// What goes down with its server is not the algorithm's doing.
	says, back, gone := subset.Compare(before, after), subset.Compare(after, before), 0
	for _, k := range subset.Connections(after, subset.Dense(f.more))[f.before:] {
		gone += k
	}
	f.Logf("%d clients, subset size %d: utilization %.3f, at most %d connections to a server, after %.1f s",
		f.clients, f.size, utilization, most, ready.Seconds())
	f.Logf("%d to %d servers: %d of %d connections dropped (%.3f; the algorithm says %d)",
		f.before, f.more, up.real, says.Held, float64(up.real)/float64(says.Held), says.Dropped)
	f.Logf("and back: %d dropped (it says %d), and %d with their servers; %s", down.real, back.Dropped-gone, gone, causes(f, metrics))
	if len(f.pools) > 0 {
		d, b := f.subsets(deterministic, f.before), f.subsets(deterministic, f.more)
		f.Logf("deterministic subsetting: %d and %d dropped (all servers at once: %d and %d)",
			up.imagined, down.imagined, subset.Compare(d, b).Dropped, subset.Compare(b, d).Dropped)
	}
	if up.real > says.Dropped || down.real > back.Dropped-gone {
		f.Error("more dropped than the algorithm says")
	}
	return up, down
}

// dropped is how much has been until now.
func (f *fleet) dropped() (d dropped) {
	for _, s := range f.servers[:f.before] {
		d.real += int(s.closed.Load())
	}
	for _, p := range f.pools {
		d.imagined += int(p.missed.Load())
	}
	return d
}

func (d dropped) since(o dropped) dropped { return dropped{d.real - o.real, d.imagined - o.imagined} }

// promised are the subsets of all clients, by index, each in ascending order.
func (f *fleet) promised(servers int) [][]int {
	f.Helper()
	subsets := f.subsets(subset.Rocksteadier{}, servers)
	for _, s := range subsets {
		slices.Sort(s)
	}
	return subsets
}

func (f *fleet) subsets(a subset.Algorithm, servers int) [][]int {
	f.Helper()
	subsets, err := subset.Subsets(a, subset.Shape{Frontends: f.clients, Backends: subset.Dense(servers), Size: f.size})
	if err != nil {
		f.Fatal(err)
	}
	return subsets
}

// settle waits until each client has the subset of its index, the indexes are
// dense, and each server has the connections that follow.
func (f *fleet) settle(clerks []*clerk.Clerk, subsets [][]int) {
	f.Helper()
	want := subset.Connections(subsets, subset.Dense(f.more))
	f.await("subsets and connections", func() (bool, string) {
		seen := make([]bool, len(clerks))
		for i, c := range clerks {
			s := c.Subset()
			if s == nil {
				return false, fmt.Sprintf("client %d has no assignment", i)
			}
			index, known := s.Index()
			if !known || index >= len(clerks) || seen[index] {
				return false, fmt.Sprintf("client %d has index %d, known: %v", i, index, known)
			}
			seen[index] = true
			var in []int
			for _, task := range s.Tasks() {
				in = append(in, int(task.Index))
			}
			if !slices.Equal(in, subsets[index]) {
				return false, fmt.Sprintf("client %d has index %d and the subset %v, not %v", i, index, in, subsets[index])
			}
		}
		a := clerks[0].Assignment()
		open, off := 0, 0
		for _, s := range f.servers {
			open += s.open()
			is := 0
			if pos, ok := a.Position(s.name); ok && a.Task(pos).State != assignment.TaskDead {
				is = want[a.Task(pos).Index]
			}
			if s.open() != is {
				off++
			}
		}
		return off == 0, fmt.Sprintf("%d connections, %d servers have others than they should", open, off)
	})
}

// causes sums up the clerks' counts of connections.
func causes(tb testing.TB, clients prometheus.Gatherers) string {
	sums := make(map[string]float64)
	for _, fam := range gather(tb, clients) {
		for _, m := range fam.GetMetric() {
			name := ""
			switch fam.GetName() {
			case "slicer_clerk_connections_opened_total":
				name = "opened " + label(m, "cause")
			case "slicer_clerk_connections_closed_total":
				name = "closed " + label(m, "cause")
			}
			if v := m.GetCounter().GetValue(); name != "" && v > 0 {
				sums[name] += v
			}
		}
	}
	return fmt.Sprint(sums)
}

// gather is that of each client in turn: their metrics have the same labels.
func gather(tb testing.TB, clients prometheus.Gatherers) (all []*dto.MetricFamily) {
	for _, g := range clients {
		families, err := g.Gather()
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, families...)
	}
	return all
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
