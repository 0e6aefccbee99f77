package xds

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/slicer-project/slicer/assignment"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

const (
	// MaxSlices is how many slices a job that is served may have, adjacent ones with the
	// same owners counting as one, and MaxOwnerSets how many different sets of owners.
	MaxSlices    = 5000
	MaxOwnerSets = 200
	// anySize is how many tasks a client connects to for calls that no owner takes.
	anySize = 20
	// Of a ring hash: small, since each client makes one for each set of owners.
	minRing, maxRing = 64, 1024
	// maxShare is the weight of the heaviest in a choice by weight.
	maxShare = 1000

	// sliceKeyHeader is the header that routes look at, sliceNumberHeader that of ranges.
	sliceKeyHeader    = "slice-key"
	sliceNumberHeader = "slice-number"
	connectWithin     = 2 * time.Second
)

// kind is a type of resources.
type kind int

const (
	listeners kind = iota
	routes
	clusters
	endpoints
	numKinds
)

var typeURLs = [numKinds]string{
	listeners: "type.googleapis.com/envoy.config.listener.v3.Listener",
	routes:    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	clusters:  "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	endpoints: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
}

// Types of what these hold.
const (
	managerURL   = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	routerURL    = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	aggregateURL = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig"
)

// String is the last part of the type's name.
func (k kind) String() string { return typeURLs[k][strings.LastIndexByte(typeURLs[k], '.')+1:] }

// resource is one of what clients are sent, marshalled.
type resource struct {
	job  string
	body *anypb.Any
	// gen is the generation that it was made of.
	gen assignment.Generation
	// Of routes: the clusters that they name, in order, and those that these announce others
	// to, nil for routes that announce nothing.
	uses []string
	base *resource
}

// equal reports whether clients could tell r from s.
func (r *resource) equal(s *resource) bool {
	return r != nil && s != nil && bytes.Equal(r.body.GetValue(), s.body.GetValue())
}

func newResource(job string, g assignment.Generation, k kind, m proto.Message) *resource {
	return &resource{job: job, body: anyOf(typeURLs[k], m), gen: g}
}

func newRoutes(job string, g assignment.Generation, c *xdsv3.RouteConfiguration) *resource {
	r := newResource(job, g, routes, c)
	for _, route := range c.VirtualHosts[0].Routes {
		if name := route.Route.GetCluster(); name != "" {
			r.uses = append(r.uses, name)
		}
		for _, w := range route.Route.GetWeightedClusters().GetClusters() {
			r.uses = append(r.uses, w.Name)
		}
	}
	slices.Sort(r.uses)
	r.uses = slices.Compact(r.uses)
	return r
}

// bare are routes without what they announce.
func (r *resource) bare() *resource {
	if r.base != nil {
		return r.base
	}
	return r
}

// lacks are the clusters that r uses, and those before do not name.
func (r *resource) lacks(before *resource) (names []string) {
	for _, name := range r.uses {
		if _, ok := slices.BinarySearch(before.uses, name); !ok {
			names = append(names, name)
		}
	}
	return names
}

// detour are the routes that to are, but for clusters that are missing: these have others in
// their places, any if that is not missing too, and otherwise all that are not. Nil if to
// cannot be read, or leads to none that is not missing.
func detour(to *resource, missing []string) *resource {
	c := &xdsv3.RouteConfiguration{}
	if proto.Unmarshal(to.body.Value, c) != nil {
		return nil
	}
	is := func(name string) bool { return slices.Contains(missing, name) }
	instead := slices.DeleteFunc(slices.Clone(to.uses), is)
	if name := anyName(to.job); slices.Contains(instead, name) {
		instead = []string{name}
	}
	if len(instead) == 0 {
		return nil
	}
	for _, r := range c.VirtualHosts[0].Routes {
		action := r.GetRoute()
		if w := action.GetWeightedClusters(); w != nil {
			w.Clusters = slices.DeleteFunc(w.Clusters, func(c *xdsv3.WeightedCluster_ClusterWeight) bool { return is(c.Name) })
			total := uint32(0)
			for _, c := range w.Clusters {
				total += c.Weight.GetValue()
			}
			w.TotalWeight = wrapperspb.UInt32(total)
			if total > 0 {
				continue
			}
		} else if !is(action.GetCluster()) {
			continue
		}
		action.Cluster, action.WeightedClusters = "", equally(instead)
	}
	return newRoutes(to.job, to.gen, c)
}

// equally is a choice of clusters.
func equally(names []string) *xdsv3.WeightedCluster {
	w := &xdsv3.WeightedCluster{TotalWeight: wrapperspb.UInt32(uint32(len(names)))}
	for _, name := range names {
		w.Clusters = append(w.Clusters, &xdsv3.WeightedCluster_ClusterWeight{Name: name, Weight: wrapperspb.UInt32(1)})
	}
	return w
}

// neverCalled is the path of the route that announces clusters.
const neverCalled = "/slicer.Announced/Never"

// announce are the routes that from are, and one that no call takes, which names what to
// lacks: a client so knows clusters before calls go there. Nil if from cannot be read.
func announce(from, to *resource) *resource {
	from = from.bare()
	c := &xdsv3.RouteConfiguration{}
	if proto.Unmarshal(from.body.Value, c) != nil {
		return nil
	}
	c.VirtualHosts[0].Routes = append(c.VirtualHosts[0].Routes, &xdsv3.Route{
		Match: &xdsv3.RouteMatch{Path: neverCalled},
		Route: &xdsv3.RouteAction{WeightedClusters: equally(to.lacks(from))},
	})
	r := newRoutes(from.job, from.gen, c)
	r.base = from
	return r
}

// marshal is for messages made here, which always can be.
func marshal(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("xds: %T does not marshal: %v", m, err))
	}
	return b
}

// anyOf is a message of a type that xDS calls so.
func anyOf(url string, m proto.Message) *anypb.Any {
	return &anypb.Any{TypeUrl: url, Value: marshal(m)}
}

var overADS = &xdsv3.ConfigSource{ResourceApiVersion: xdsv3.ApiVersion_V3, Ads: &xdsv3.AggregatedConfigSource{}}

// listenerOf is the same in every generation.
func listenerOf(job string) *xdsv3.Listener {
	return &xdsv3.Listener{Name: job, ApiListener: &xdsv3.ApiListener{ApiListener: anyOf(managerURL, &xdsv3.HttpConnectionManager{
		Rds:         &xdsv3.Rds{ConfigSource: overADS, RouteConfigName: job},
		HttpFilters: []*xdsv3.HttpFilter{{Name: "router", TypedConfig: anyOf(routerURL, &xdsv3.Router{})}},
	})}}
}

// style is how routes tell keys apart.
type style int

const (
	// byExpression: an expression over the hex digits, for each set of owners. Clients try one after
	// the other, so before a long one there is one that is matched faster and says no to most keys.
	byExpression style = iota
	// byShortExpression: an expression for clients of the C-core, which take long ones as fast, and
	// several where one were too long for them.
	byShortExpression
	// byRange: a range of numbers for each slice. It is for clients in Node: their RE2 has
	// 16 MiB of memory and never gives any of it back, so that each update of the routes
	// would bring them nearer to their end.
	byRange
	numStyles
)

// ownerSet is the keys that have the same owners.
type ownerSet struct {
	owners []int // positions in the task table, in order
	runs   []keyRun
	wide   uint64 // how many keys it has in runs that are not narrow
}

// ownerSets finds the sets of owners in the order of their routes, and all runs of slices with
// the same owners. Sets that have nothing but narrow runs come first: these are hot keys, and
// their routes are short. Then that comes with most of the keyspace.
func ownerSets(a *assignment.Assignment) (sets []*ownerSet, runs []keyRun) {
	byOwners := make(map[string]*ownerSet)
	var of []*ownerSet // of each run
	var owners []int
	var key []byte
	for s, r := range a.All() {
		owners, key = owners[:0], key[:0]
		for i := range r.Len() {
			owners = append(owners, r.Position(i))
		}
		slices.Sort(owners)
		for _, p := range owners {
			key = binary.AppendUvarint(key, uint64(p))
		}
		o := byOwners[string(key)]
		if o == nil {
			o = &ownerSet{owners: slices.Clone(owners)}
			byOwners[string(key)] = o
			sets = append(sets, o)
		}
		if n := len(of); n > 0 && of[n-1] == o {
			runs[n-1].hi = uint64(s.End)
			continue
		}
		of, runs = append(of, o), append(runs, keyRun{lo: uint64(s.Start), hi: uint64(s.End)})
	}
	for i, r := range runs {
		if !r.narrow() {
			of[i].wide += r.hi - r.lo
		}
	}
	slices.SortStableFunc(sets, func(x, y *ownerSet) int {
		if x.wide == 0 || y.wide == 0 {
			return cmp.Compare(x.wide, y.wide)
		}
		return cmp.Compare(y.wide, x.wide)
	})
	rank := make(map[*ownerSet]int)
	for i, o := range sets {
		rank[o] = i
	}
	for i, o := range of {
		runs[i].rank = rank[o]
		o.runs = append(o.runs, runs[i])
	}
	return sets, runs
}

// routesOf are a's routes, or why clients cannot be given them.
func routesOf(a *assignment.Assignment, s style, x assignment.XDSConfig) (c *xdsv3.RouteConfiguration, refusal string) {
	sets, runs := ownerSets(a)
	switch {
	case len(runs) > MaxSlices:
		return nil, fmt.Sprintf("it has %d slices, and xDS clients can be given %d", len(runs), MaxSlices)
	case len(sets) > MaxOwnerSets:
		return nil, fmt.Sprintf("its slices have %d different sets of owners, and xDS clients can be given %d", len(sets), MaxOwnerSets)
	}
	most := maxExpression
	if s == byShortExpression {
		most = maxShortExpression
	}
	var all []*xdsv3.Route
	for _, o := range sets {
		if s == byRange {
			for _, r := range o.runs {
				all = append(all, routeOf(a, o, rangeMatch(r)))
			}
			continue
		}
		for _, e := range expressions(runs, o.runs, most, s == byExpression) {
			match := []*xdsv3.HeaderMatcher{expressionMatch(e.exact)}
			if e.coarse != "" {
				match = slices.Insert(match, 0, expressionMatch(e.coarse))
			}
			all = append(all, routeOf(a, o, match...))
		}
	}
	if x.Missing == assignment.MissingAny {
		all = append(all, &xdsv3.Route{Match: anyPath(), Route: &xdsv3.RouteAction{Cluster: anyName(a.Job())}})
	}
	host := &xdsv3.VirtualHost{Name: a.Job(), Domains: []string{"*"}, Routes: all}
	if x.Retries > 0 {
		host.RetryPolicy = &xdsv3.RetryPolicy{
			RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(uint32(x.Retries)),
			RetryBackOff: &xdsv3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(x.RetryBackoff), MaxInterval: durationpb.New(10 * x.RetryBackoff)},
		}
	}
	return &xdsv3.RouteConfiguration{Name: a.Job(), VirtualHosts: []*xdsv3.VirtualHost{host}}, ""
}

func anyPath() *xdsv3.RouteMatch {
	return &xdsv3.RouteMatch{Prefix: proto.String("")}
}

// google_re2 is deprecated, and gRPC's C-core of 1.51, which Debian has, wants it and knows
// no string_match.
func expressionMatch(e string) *xdsv3.HeaderMatcher {
	return &xdsv3.HeaderMatcher{Name: sliceKeyHeader, SafeRegexMatch: &xdsv3.RegexMatcher{GoogleRe2: &xdsv3.RegexMatcher_GoogleRE2{}, Regex: e}}
}

// rangeMatch leaves out the very last slice key: the end of the keyspace is no int64.
func rangeMatch(r keyRun) *xdsv3.HeaderMatcher {
	return &xdsv3.HeaderMatcher{Name: sliceNumberHeader, RangeMatch: &xdsv3.Int64Range{
		Start: int64(r.lo), End: int64(min(r.hi, uint64(assignment.KeyspaceEnd)-1)),
	}}
}

func routeOf(a *assignment.Assignment, o *ownerSet, headers ...*xdsv3.HeaderMatcher) *xdsv3.Route {
	m := anyPath()
	m.Headers = headers
	action := &xdsv3.RouteAction{Cluster: ownName(a.Job(), a.Task(o.owners[0]))}
	if len(o.owners) > 1 {
		shares := shares(len(o.owners), func(i int) float64 { return a.Task(o.owners[i]).Weight })
		w := &xdsv3.WeightedCluster{}
		total := uint32(0)
		for i, p := range o.owners {
			w.Clusters = append(w.Clusters, &xdsv3.WeightedCluster_ClusterWeight{Name: ownName(a.Job(), a.Task(p)), Weight: wrapperspb.UInt32(shares[i])})
			total += shares[i]
		}
		w.TotalWeight = wrapperspb.UInt32(total) // C-core of 1.51 takes 100 for it otherwise
		action.Cluster, action.WeightedClusters = "", w
	}
	return &xdsv3.Route{Match: m, Route: action}
}

// shares are weights in whole numbers, at least 1 and at most maxShare.
func shares(n int, weight func(i int) float64) []uint32 {
	heaviest := 0.0
	for i := range n {
		heaviest = max(heaviest, weight(i))
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(max(math.Round(weight(i)/heaviest*maxShare), 1))
	}
	return out
}

// A resource's name begins with its job's, since a client may ask for several jobs on one
// stream.
func anyName(job string) string                     { return job + "/any" }
func taskName(job string, t assignment.Task) string { return job + "/task:" + instance(t) }
func ownName(job string, t assignment.Task) string  { return job + "/own:" + instance(t) }

func instance(t assignment.Task) string { return t.Name + "." + strconv.FormatUint(t.Incarnation, 16) }

// policy is how the tasks of a cluster are chosen among.
type policy int

const (
	// ring is a ring hash, for its laziness: it connects to a task when it first chooses it.
	ring policy = iota
	// turns is round robin.
	turns
)

// flavor is what differs between clients of different libraries.
type flavor struct {
	policy policy
	style  style
}

func (p policy) apply(c *xdsv3.Cluster) *xdsv3.Cluster {
	if p == ring {
		c.LbPolicy = xdsv3.Cluster_RING_HASH
		c.RingHashLbConfig = &xdsv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(minRing), MaximumRingSize: wrapperspb.UInt64(maxRing)}
	}
	c.ConnectTimeout = durationpb.New(connectWithin)
	return c
}

// anyCluster is some of the job's tasks; which, its endpoints say.
func anyCluster(job string, p policy) *xdsv3.Cluster {
	return p.apply(&xdsv3.Cluster{
		Name: anyName(job), Type: xdsv3.Cluster_EDS,
		EdsClusterConfig: &xdsv3.Cluster_EdsClusterConfig{EdsConfig: overADS, ServiceName: anyName(job)},
	})
}

// taskCluster is one task.
func taskCluster(job string, t assignment.Task, p policy) *xdsv3.Cluster {
	return p.apply(&xdsv3.Cluster{
		Name: taskName(job, t), Type: xdsv3.Cluster_LOGICAL_DNS,
		LoadAssignment: &xdsv3.ClusterLoadAssignment{
			ClusterName: taskName(job, t),
			Endpoints:   []*xdsv3.LocalityLbEndpoints{{LbEndpoints: []*xdsv3.LbEndpoint{endpointOf(t, 0)}}},
		},
	})
}

// ownCluster is one task, and others where it cannot be reached.
func ownCluster(job string, t assignment.Task, p policy) *xdsv3.Cluster {
	return inOrder(ownName(job, t), p, taskName(job, t), anyName(job))
}

// inOrder is a cluster that is the first of others that can be reached.
func inOrder(name string, p policy, others ...string) *xdsv3.Cluster {
	return p.apply(&xdsv3.Cluster{
		Name: name, ClusterType: &xdsv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: anyOf(aggregateURL, &xdsv3.ClusterConfig{Clusters: others}),
		},
	})
}

// endpointOf is a task's address, with a weight unless it is 0.
func endpointOf(t assignment.Task, weight uint32) *xdsv3.LbEndpoint {
	host, port, err := net.SplitHostPort(t.Address)
	n, _ := strconv.ParseUint(port, 10, 16)
	if err != nil {
		host = t.Address
	}
	e := &xdsv3.LbEndpoint{Endpoint: &xdsv3.Endpoint{Address: &xdsv3.Address{
		SocketAddress: &xdsv3.SocketAddress{Address: host, PortValue: proto.Uint32(uint32(n))},
	}}}
	if weight > 0 {
		e.HealthStatus, e.LoadBalancingWeight = xdsv3.HealthStatus_HEALTHY, wrapperspb.UInt32(weight)
	}
	return e
}

// anyEndpoints are the tasks that one client connects to for calls that no owner takes: at
// most anySize, of those that run if there are any, by rendezvous with the client's number.
func anyEndpoints(a *assignment.Assignment, client uint64) *xdsv3.ClusterLoadAssignment {
	type ranked struct {
		task assignment.Task
		rank uint64
	}
	var running, others []ranked
	for _, t := range a.Tasks() {
		if net.ParseIP(hostOf(t)) == nil {
			continue // endpoints are to be addresses: gRPC does not look names up
		}
		r := ranked{t, rank(client, t.Name)}
		switch t.State {
		case assignment.TaskRunning:
			running = append(running, r)
		case assignment.TaskDead:
		default:
			others = append(others, r)
		}
	}
	if len(running) == 0 {
		running = others
	}
	slices.SortFunc(running, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.task.Name, y.task.Name))
	})
	running = running[:min(len(running), anySize)]
	weights := shares(len(running), func(i int) float64 { return running[i].task.Weight })
	l := &xdsv3.LocalityLbEndpoints{Locality: &xdsv3.Locality{}, LoadBalancingWeight: wrapperspb.UInt32(1)}
	for i, r := range running {
		l.LbEndpoints = append(l.LbEndpoints, endpointOf(r.task, weights[i]))
	}
	return &xdsv3.ClusterLoadAssignment{ClusterName: anyName(a.Job()), Endpoints: []*xdsv3.LocalityLbEndpoints{l}}
}

func hostOf(t assignment.Task) string {
	host, _, _ := net.SplitHostPort(t.Address)
	return host
}

func rank(client uint64, task string) uint64 {
	return xxhash.Sum64(append(binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(task)), client), task...))
}
