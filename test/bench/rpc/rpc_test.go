package rpc

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/test/kit/bed"
	"github.com/slicer-project/slicer/test/kit/onecore"
)

var (
	rounds   = flag.Int("rounds", 61, "how often each kind is measured, in turns")
	requests = flag.Int("requests", 320, "how many requests each is sent a round")
	profile  = flag.String("kind", "", "only the kind of this name, and nothing judged: for profiles")
)

// trial is a control plane and the processes of a client and of servers.
type trial struct {
	client, server *onecore.Process
	addrs          []string // of the servers
	slicer         string
}

func start(b *testing.B) *trial {
	b.Helper()
	onecore.Apart(b)
	plane := bed.Start(b, bed.Config{})
	for _, job := range []string{rpcJob, webJob, plainJob} {
		if err := plane.PutJob(b.Context(), assignment.JobConfig{Name: job}.WithDefaults()); err != nil {
			b.Fatal(err)
		}
	}
	t := &trial{slicer: plane.Addrs()[0]}
	t.server = onecore.Start(b, roleEnv+"=server "+t.slicer)
	t.addrs = strings.Fields(t.server.Addr)
	t.client = onecore.Start(b, roleEnv+"=client "+t.slicer+" "+t.server.Addr)
	return t
}

// cost is the CPU time of requests in microseconds each, of the client, the server and the
// proxy; and how many objects each of them allocated for one.
type cost struct{ client, server, proxy, wall, clientObjects, serverObjects, proxyObjects float64 }

func (c cost) all() float64 { return c.client + c.server + c.proxy }

// used is the CPU time in microseconds and the objects of a process so far.
func used(b *testing.B, p *onecore.Process) (us, objects float64) {
	b.Helper()
	if p == nil {
		return 0, 0
	}
	if _, err := fmt.Sscan(p.Ask(b, "used"), &us, &objects); err != nil {
		b.Fatal(err)
	}
	return us / 1000, objects
}

// measure sends n requests of a kind.
func (t *trial) measure(b *testing.B, kind string, n, atATime, size int, proxy *onecore.Process) cost {
	b.Helper()
	server, serverObjects := used(b, t.server)
	through, throughObjects := used(b, proxy)
	var client, wall, objects float64
	if _, err := fmt.Sscan(t.client.Ask(b, fmt.Sprintf("%s %d %d %d", kind, n, atATime, size)), &client, &wall, &objects); err != nil {
		b.Fatal(err)
	}
	each := 1 / float64(n)
	c := cost{client: client / 1000 * each, wall: wall / 1000 * each, clientObjects: objects * each}
	us, o := used(b, proxy)
	c.proxy, c.proxyObjects = (us-through)*each, (o-throughObjects)*each
	us, o = used(b, t.server)
	c.server, c.serverObjects = (us-server)*each, (o-serverObjects)*each
	return c
}

// bar is what is at least left of one kind's requests a second with another.
type bar struct {
	kind, of string
	least    float64
	most     float64 // microseconds more, 0 for any
	// of is compared by the proxy's CPU time alone.
	proxy bool
}

// compare measures kinds in turns and prints medians.
func (t *trial) compare(b *testing.B, kinds []string, atATime, size int, proxy *onecore.Process, bars []bar) {
	b.Helper()
	if *profile != "" {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k[strings.IndexByte(k, '/')+1:] != *profile })
	}
	n := max(*requests/atATime, 1) * atATime
	got := map[string][]cost{}
	// What has been run just before is run again for less. So none always follows the same one,
	// and what begins a turn is not measured.
	order := rand.New(rand.NewPCG(1, uint64(len(kinds))))
	for range *rounds {
		for _, i := range order.Perm(len(kinds)) {
			t.measure(b, kinds[i], max(n/8/atATime, 1)*atATime, atATime, size, proxy)
			got[kinds[i]] = append(got[kinds[i]], t.measure(b, kinds[i], n, atATime, size, proxy))
		}
	}
	median := func(k string, f func(cost) float64) float64 {
		var v []float64
		for _, c := range got[k] {
			v = append(v, f(c))
		}
		return middle(v)
	}
	name := func(k string) string { k, _, _ = strings.Cut(k, "@"); return k[strings.IndexByte(k, '/')+1:] }
	for _, k := range kinds {
		of := func(f func(cost) float64) float64 { return median(k, f) }
		b.Logf("%-26s %6.1f us of CPU: client %5.1f (%.0f objects), server %5.1f (%.0f), proxy %5.1f (%.0f); %6.1f us of time a request", name(k), of(cost.all),
			of(func(c cost) float64 { return c.client }), of(func(c cost) float64 { return c.clientObjects }),
			of(func(c cost) float64 { return c.server }), of(func(c cost) float64 { return c.serverObjects }),
			of(func(c cost) float64 { return c.proxy }), of(func(c cost) float64 { return c.proxyObjects }), of(func(c cost) float64 { return c.wall }))
	}
	for _, x := range bars {
		if len(got[x.kind]) == 0 || len(got[x.of]) == 0 {
			continue
		}
		of := cost.all
		if x.proxy {
			of = func(c cost) float64 { return c.proxy }
		}
		var left, more []float64
		for r := range *rounds {
			us, them := of(got[x.kind][r]), of(got[x.of][r])
			left, more = append(left, them/us), append(more, us-them)
		}
		l, m := middle(left), middle(more)
		verdict := "met"
		if l < x.least || x.most > 0 && m > x.most {
			verdict = "missed"
		}
		if x.least == 0 {
			verdict = ""
		}
		b.Logf("%s of %s: %.3f (%.2f to %.2f; at least %.2f), %+.1f us %s", name(x.kind), name(x.of), l, slices.Min(left), slices.Max(left), x.least, m, verdict)
		b.ReportMetric(l, name(x.kind)+"/"+name(x.of))
	}
	b.ReportMetric(0, "ns/op")
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkRPC is an RPC through clerkgrpc and sliceletgrpc, the key in the metadata or in the
// request, beside gRPC's own balancers to plain servers; what one more header, that hardly ever
// changes, costs these: it is what the generation in one header with the key would spare; and what
// windows that do not change spare them.
//
//	go test -c -o rpc.test ./test/bench/rpc && nice -n -5 ./rpc.test -test.v -test.run '^$' -test.bench RPC -test.benchtime 1x
func BenchmarkRPC(b *testing.B) {
	t := start(b)
	for _, how := range []string{"unary", "stream"} {
		for _, size := range []int{100, 10_000} {
			for _, atATime := range []int{1, 16, 256} {
				b.Run(fmt.Sprintf("%s/%dB/c=%d", how, size, atATime), func(b *testing.B) {
					for b.Loop() {
						k := func(name string) string { return how + "/" + name }
						kinds := []string{k("round_robin"), k("header_by_hand"), k("headers_by_hand"), k("header_and_windows"), k("ring_hash"), k("slicer")}
						if how == "unary" {
							kinds = append(kinds, k("slicer_in_request"))
						}
						t.compare(b, kinds, atATime, size, nil, []bar{
							{kind: k("slicer"), of: k("header_by_hand"), least: .95, most: 3},
							{kind: k("slicer_in_request"), of: k("round_robin"), least: .95},
							{kind: k("slicer"), of: k("round_robin")},
							{kind: k("header_by_hand"), of: k("round_robin")},
							{kind: k("headers_by_hand"), of: k("header_by_hand")},
							{kind: k("header_and_windows"), of: k("header_by_hand")},
							{kind: k("slicer"), of: k("header_and_windows")},
							{kind: k("ring_hash"), of: k("round_robin")},
						})
					}
				})
			}
		}
	}
}

// BenchmarkHTTP is a GET through clerkhttp's transport, to plain servers and to ours; beside it
// what net/http alone takes for as many headers, or for the same in one, and for a context that can
// be ended.
//
//	go test -c -o rpc.test ./test/bench/rpc && nice -n -5 ./rpc.test -test.v -test.run '^$' -test.bench HTTP -test.benchtime 1x
func BenchmarkHTTP(b *testing.B) {
	t := start(b)
	for _, atATime := range []int{1, 16} {
		b.Run(fmt.Sprintf("c=%d", atATime), func(b *testing.B) {
			for b.Loop() {
				kinds := []string{"http/net_http", "http/headers_by_hand", "http/headers_and_context", "http/one_header_and_context", "http/clerkhttp", "http/clerkhttp+slicelethttp"}
				t.compare(b, kinds, atATime, 0, nil, []bar{
					{kind: "http/clerkhttp", of: "http/net_http", least: .92},
					{kind: "http/headers_by_hand", of: "http/net_http"},
					{kind: "http/headers_and_context", of: "http/net_http"},
					{kind: "http/one_header_and_context", of: "http/net_http"},
					{kind: "http/clerkhttp", of: "http/headers_and_context"},
					{kind: "http/clerkhttp+slicelethttp", of: "http/net_http"},
				})
			}
		})
	}
}

// BenchmarkProxy is a GET through slicerproxy's handler and through httputil.ReverseProxy, to plain
// servers. Judged is the CPU time of the proxy alone.
//
//	go test -c -o rpc.test ./test/bench/rpc && nice -n -5 ./rpc.test -test.v -test.run '^$' -test.bench Proxy -test.benchtime 1x
func BenchmarkProxy(b *testing.B) {
	t := start(b)
	proxy := onecore.Start(b, roleEnv+"=proxy "+t.slicer+" "+t.addrs[2])
	at := strings.Fields(proxy.Addr)
	plain, pooled, ours := "proxy/ReverseProxy@"+at[0], "proxy/ReverseProxy_BufferPool@"+at[1], "proxy/slicerproxy@"+at[2]
	for _, atATime := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("c=%d", atATime), func(b *testing.B) {
			for b.Loop() {
				t.compare(b, []string{plain, pooled, ours}, atATime, 0, proxy, []bar{
					{kind: ours, of: plain, least: .95, proxy: true},
					{kind: ours, of: pooled, proxy: true},
				})
			}
		})
	}
}
