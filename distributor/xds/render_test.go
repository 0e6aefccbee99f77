//lint:file-ignore SA1019 C-core 1.51 and grpc-go 1.85 read the deprecated fields alone.

package xds

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment"
)

// usual is what the config of a job says that has the defaults.
var usual = Terms{Config: assignment.XDSConfig{}.OrDefaults()}

const baseGen = 1_700_000_000_000

func makeTasks(n int) []assignment.Task {
	table := make([]assignment.Task, n)
	for i := range table {
		table[i] = assignment.Task{
			Name: fmt.Sprintf("web-%d", i), Incarnation: uint64(i + 0xa0), Address: fmt.Sprintf("10.0.%d.%d:8080", i>>8, i&255),
			Index: uint32(i), Weight: 1, State: assignment.TaskRunning,
		}
	}
	return table
}

func makeAssignment(t testing.TB, g assignment.Generation, tasks []assignment.Task, starts []assignment.SliceKey, owners func(i int) []uint32) *assignment.Assignment {
	t.Helper()
	p := assignment.Placement{}
	for i, start := range starts {
		p.Add(start, owners(i)...)
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "web", StoreID: 7, Generation: g}, tasks, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// dealt deals equal slices out in turns.
func dealt(t testing.TB, g assignment.Generation, tasks, n int) *assignment.Assignment {
	t.Helper()
	return makeAssignment(t, g, makeTasks(tasks), assignment.Equal(n), func(i int) []uint32 { return []uint32{uint32(i % tasks)} })
}

// table is a route configuration as a client reads it.
type table []struct {
	match   func(string) bool
	leadsTo []string
}

// read reads routes as Envoy's type for them has them.
func read(t testing.TB, routes proto.Message) (out table) {
	t.Helper()
	c := new(routev3.RouteConfiguration)
	if err := proto.Unmarshal(marshal(routes), c); err != nil {
		t.Fatal(err)
	}
	for _, r := range c.VirtualHosts[0].Routes {
		var all []func(string) bool
		for _, h := range r.Match.Headers {
			if in := h.GetRangeMatch(); in != nil {
				all = append(all, func(v string) bool {
					n, err := strconv.ParseInt(v, 10, 64)
					return err == nil && in.Start <= n && n < in.End
				})
				continue
			}
			e := h.GetSafeRegexMatch().GetRegex()
			all = append(all, regexp.MustCompile("^(?:"+e+")$").MatchString)
		}
		match := func(v string) bool {
			return !slices.ContainsFunc(all, func(match func(string) bool) bool { return !match(v) })
		}
		leads := []string{r.GetRoute().GetCluster()}
		if w := r.GetRoute().GetWeightedClusters(); w != nil {
			leads = nil
			total := uint32(0)
			for _, c := range w.Clusters {
				leads = append(leads, c.Name)
				total += c.Weight.Value
			}
			if w.TotalWeight.GetValue() != total { //nolint:staticcheck
				t.Errorf("total_weight is %d of %d", w.TotalWeight.GetValue(), total) //nolint:staticcheck
			}
		}
		slices.Sort(leads)
		out = append(out, struct {
			match   func(string) bool
			leadsTo []string
		}{match, leads})
	}
	return out
}

func (c table) lookup(key string) []string {
	for _, r := range c {
		if r.match(key) {
			return r.leadsTo
		}
	}
	return nil
}

func ownersOf(a *assignment.Assignment, k assignment.SliceKey) (out []string) {
	for t := range a.Lookup(k).All() {
		out = append(out, ownName(a.Job(), t))
	}
	slices.Sort(out)
	return out
}

// runs are slices, neighbours with the same owners being one.
func runs(a *assignment.Assignment) (out []assignment.Slice) {
	for s := range a.All() {
		if n := len(out); n > 0 && slices.Equal(ownersOf(a, out[n-1].Start), ownersOf(a, s.Start)) {
			out[n-1].End = s.End
		} else {
			out = append(out, s)
		}
	}
	return out
}

// Routes lead to the owners: exactly at narrow slices, and wherever slices are wide, but for
// what is left of the digits behind the first eight.
func TestRoutesLeadToOwners(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rnd.IntN(9)
		starts := []assignment.SliceKey{0}
		for range rnd.IntN(60) {
			k := assignment.SliceKey(rnd.Uint64() >> 1)
			switch rnd.IntN(4) {
			case 0: // a single key
				starts = append(starts, k, k+1)
			case 1: // a narrow slice
				starts = append(starts, k, k+assignment.SliceKey(1+rnd.IntN(1<<20)))
			case 2: // where halving ends
				starts = append(starts, k>>50<<50)
			default:
				starts = append(starts, k)
			}
		}
		slices.Sort(starts)
		starts = slices.Compact(starts)
		tasks := makeTasks(n)
		for i := range tasks {
			tasks[i].Weight = 1e-6 + rnd.Float64()*1e6
		}
		a := makeAssignment(t, baseGen, tasks, starts, func(int) []uint32 {
			first, count := rnd.IntN(n), 1+rnd.IntN(min(n, 3))
			var owners []uint32
			for i := range count {
				owners = append(owners, uint32((first+i)%n))
			}
			return owners
		})
		c, refusal := routesOf(a, byExpression, usual.Config)
		if refusal != "" {
			t.Fatal(refusal)
		}
		tab := read(t, c)
		short, _ := routesOf(a, byShortExpression, usual.Config)
		tabShort := read(t, short)
		ranges, _ := routesOf(a, byRange, usual.Config)
		byNumber := read(t, ranges)
		for _, s := range runs(a) {
			// Narrow slices are exact; of others the first 8 digits decide, but that the first
			// and the last key are where they belong.
			keys := []assignment.SliceKey{s.Start, s.End - 1}
			if s.Start>>cutBits == (s.End-1)>>cutBits {
				keys = append(keys, s.Start+(s.End-s.Start)/2)
			} else if k := s.Start + (s.End-s.Start)/2; k>>cutBits != s.Start>>cutBits && k>>cutBits != s.End>>cutBits {
				keys = append(keys, k)
			}
			for _, k := range keys {
				want := ownersOf(a, k)
				if got := tab.lookup(k.String()); !slices.Equal(got, want) {
					t.Fatalf("seed %d: key %s of %v leads to %v, want %v", seed, k, s, got, want)
				}
				if got := tabShort.lookup(k.String()); !slices.Equal(got, want) {
					t.Fatalf("seed %d: key %s of %v leads by short expressions to %v, want %v", seed, k, s, got, want)
				}
				if got := byNumber.lookup(strconv.FormatUint(uint64(k), 10)); !slices.Equal(got, want) && k != assignment.KeyspaceEnd-1 {
					t.Fatalf("seed %d: number %d of %v leads to %v, want %v", seed, k, s, got, want)
				}
			}
		}
		wrong := 0
		for range 500 {
			k := assignment.SliceKey(rnd.Uint64() >> 1)
			if !slices.Equal(tab.lookup(k.String()), ownersOf(a, k)) {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("seed %d: %d of 500 keys lead elsewhere", seed, wrong)
		}
		for _, k := range []string{"", "8000000000000000", "ffffffffffffffff", "user/4711"} {
			if got := tab.lookup(k); !slices.Equal(got, []string{"web/any"}) {
				t.Errorf("seed %d: %q leads to %v", seed, k, got)
			}
		}
	}
}

// A hot key's slice leads to its owner, whatever lies around it, in both directions.
func TestSingleKeysComeFirst(t *testing.T) {
	hot, cold := assignment.KeyOf("hot"), assignment.KeyOf("cold")
	starts := []assignment.SliceKey{0, cold, cold + 1, hot, hot + 1}
	owners := [][]uint32{{0}, {1, 2}, {1}, {0, 2}, {0}}
	if hot < cold {
		starts = []assignment.SliceKey{0, hot, hot + 1, cold, cold + 1}
		owners = [][]uint32{{0}, {1, 2}, {1}, {0, 2}, {0}}
	}
	a := makeAssignment(t, baseGen, makeTasks(3), starts, func(i int) []uint32 { return owners[i] })
	c, _ := routesOf(a, byExpression, usual.Config)
	tab := read(t, c)
	for _, k := range []assignment.SliceKey{0, hot, cold, hot + 1<<cutBits, cold + 1<<cutBits, hot - 1<<cutBits, cold - 1<<cutBits, assignment.KeyspaceEnd - 1} {
		if got, want := tab.lookup(k.String()), ownersOf(a, k); !slices.Equal(got, want) {
			t.Errorf("key %s leads to %v, want %v", k, got, want)
		}
	}
}

// Routes that announce others are those before, and name what the others need.
func TestAnnounce(t *testing.T) {
	a, b := dealt(t, baseGen, 3, 30), dealt(t, baseGen+1, 6, 30)
	before, _ := routesOf(a, byExpression, usual.Config)
	after, _ := routesOf(b, byExpression, usual.Config)
	from, to := newRoutes("web", baseGen, before), newRoutes("web", baseGen+1, after)
	for range 2 { // from the routes before, and from those that announce
		from = announce(from, to)
		if from.gen != baseGen || len(to.lacks(from)) != 0 || len(from.uses) != 7 {
			t.Fatalf("of generation %d, using %q", from.gen, from.uses)
		}
	}
	c := new(routev3.RouteConfiguration)
	if err := from.body.UnmarshalTo(c); err != nil {
		t.Fatal(err)
	}
	all := c.VirtualHosts[0].Routes
	if last := all[len(all)-1]; last.Match.GetPath() != neverCalled || len(all) != len(before.VirtualHosts[0].Routes)+1 {
		t.Errorf("%d routes, the last of %s", len(all), last.Match)
	}
	tab := read(t, c)
	for s := range a.All() {
		if got, want := tab.lookup(s.Start.String()), ownersOf(a, s.Start); !slices.Equal(got, want) {
			t.Errorf("%s leads to %v, want %v", s.Start, got, want)
		}
	}
}

// What a job's config says: calls that no owner takes may fail, and none be sent again.
func TestTermsOfRoutes(t *testing.T) {
	a := dealt(t, baseGen, 3, 9)
	c, _ := routesOf(a, byExpression, assignment.XDSConfig{Missing: assignment.MissingRefuse, Retries: assignment.NoXDSRetries, RetryBackoff: time.Second})
	tab := read(t, c)
	if got := tab.lookup("user/4711"); got != nil || c.VirtualHosts[0].RetryPolicy != nil {
		t.Errorf("a call without a slice key leads to %q; retries: %v", got, c.VirtualHosts[0].RetryPolicy)
	}
	for s := range a.All() {
		if got, want := tab.lookup(s.Start.String()), ownersOf(a, s.Start); !slices.Equal(got, want) {
			t.Errorf("%s leads to %v, want %v", s.Start, got, want)
		}
	}
	c, _ = routesOf(a, byExpression, assignment.XDSConfig{Missing: assignment.MissingAny, Retries: 2, RetryBackoff: 30 * time.Millisecond})
	if p := c.VirtualHosts[0].RetryPolicy; p.NumRetries.Value != 2 || p.RetryBackOff.BaseInterval.AsDuration() != 30*time.Millisecond || p.RetryBackOff.MaxInterval.AsDuration() != 300*time.Millisecond {
		t.Errorf("retries: %v", p)
	}
	// A book takes news of either, of the assignment that it has.
	b, now := newBook("web"), time.UnixMilli(baseGen)
	b.set(now, a, usual)
	was, terms := b.routes[byExpression], usual
	terms.Config.Missing = assignment.MissingRefuse
	if !b.set(now, dealt(t, baseGen-1, 3, 9), terms) || b.a != a || b.routes[byExpression] == was || b.set(now, a, terms) {
		t.Error("other terms with an older assignment are not taken, or not once")
	}
}

func TestNeighboursMerge(t *testing.T) {
	a := makeAssignment(t, baseGen, makeTasks(4), assignment.Equal(160), func(i int) []uint32 { return []uint32{uint32(i / 40)} })
	c, _ := routesOf(a, byExpression, usual.Config)
	if n := len(c.VirtualHosts[0].Routes); n != 5 {
		t.Errorf("%d routes, want one a task and the default", n)
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	a := dealt(t, baseGen, 2, 5000)
	for s, most := range map[style]int{byExpression: maxExpression, byShortExpression: maxShortExpression} {
		c, refusal := routesOf(a, s, usual.Config)
		if refusal != "" {
			t.Fatal(refusal)
		}
		for _, r := range c.VirtualHosts[0].Routes {
			for _, h := range r.Match.Headers {
				if n := len(h.GetSafeRegexMatch().GetRegex()); n > most+len(".*") {
					t.Errorf("an expression of %d bytes", n)
				}
			}
		}
		tab := read(t, c)
		for s := range a.All() {
			if got, want := tab.lookup((s.End - 1<<cutBits).String()), ownersOf(a, s.End-1<<cutBits); !slices.Equal(got, want) {
				t.Fatalf("the end of %v leads to %v, want %v", s, got, want)
			}
		}
	}
}

// TestLongExpressions: where expressions are too long to be matched in one pass, a key has to be
// matched with few of them, since shorter ones before say no.
func TestLongExpressions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 5000))
	starts := []assignment.SliceKey{0}
	for range MaxSlices - 1 {
		starts = append(starts, assignment.SliceKey(rnd.Uint64()>>1))
	}
	slices.Sort(starts)
	const tasks, keys = 10, 1000
	at := uint32(0)
	a := makeAssignment(t, baseGen, makeTasks(tasks), slices.Compact(starts), func(int) []uint32 {
		at = (at + 1 + rnd.Uint32N(tasks-1)) % tasks
		return []uint32{at}
	})
	c, refusal := routesOf(a, byExpression, usual.Config)
	if refusal != "" {
		t.Fatal(refusal)
	}
	type expression struct {
		match func(string) bool
		long  bool
	}
	var all [][]expression
	for _, r := range c.VirtualHosts[0].Routes {
		var route []expression
		for _, h := range r.Match.Headers {
			e := "^(?:" + h.GetSafeRegexMatch().GetRegex() + ")$"
			parsed, err := syntax.Parse(e, syntax.Perl)
			if err != nil {
				t.Fatal(err)
			}
			program, err := syntax.Compile(parsed.Simplify())
			if err != nil {
				t.Fatal(err)
			}
			route = append(route, expression{regexp.MustCompile(e).MatchString, len(program.Inst) > onePass})
		}
		if len(route) > 1 && route[0].long {
			t.Error("the shorter expression is not matched in one pass")
		}
		all = append(all, route)
	}
	long := 0
	for range keys {
		k := assignment.SliceKey(rnd.Uint64() >> 1).String()
		tried := func(e expression) bool { // and does not match
			if e.long {
				long++
			}
			return !e.match(k)
		}
		if !slices.ContainsFunc(all, func(route []expression) bool { return !slices.ContainsFunc(route, tried) }) {
			t.Errorf("key %s has no route", k)
		}
	}
	// The owner's, and .3 of those of 4.5 others on average: of 2,048 cells of three digits a task
	// has something in so many.
	if mean := float64(long) / keys; mean < 1 || mean > 3 {
		t.Errorf("a key is matched with %.2f long expressions", mean)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		tasks, slices int
		want          string
	}{
		{2, MaxSlices, ""},
		{2, MaxSlices + 1, "it has 5001 slices, and xDS clients can be given 5000"},
		{MaxOwnerSets, 4000, ""},
		{MaxOwnerSets + 1, 4000, "its slices have 201 different sets of owners, and xDS clients can be given 200"},
	} {
		if _, got := routesOf(dealt(t, baseGen, c.tasks, c.slices), byExpression, usual.Config); got != c.want {
			t.Errorf("%d tasks and %d slices: %q, want %q", c.tasks, c.slices, got, c.want)
		}
	}
}

func TestRoutesRepeat(t *testing.T) {
	a := dealt(t, baseGen, 50, 3000)
	first, _ := routesOf(a, byExpression, usual.Config)
	for range 3 {
		again, _ := routesOf(a, byExpression, usual.Config)
		if !newResource("web", 1, routes, first).equal(newResource("web", 2, routes, again)) {
			t.Fatal("routes of one assignment differ")
		}
	}
}

func TestEndpointsOfClients(t *testing.T) {
	tasks := makeTasks(100)
	tasks[3].State = assignment.TaskDraining
	tasks[4].State = assignment.TaskDead
	tasks[5].Address = "web-5.example:8080"
	a := makeAssignment(t, baseGen, tasks, assignment.Equal(100), func(i int) []uint32 { return []uint32{uint32(i)} })
	uses := make(map[string]int)
	for client := range uint64(200) {
		l := anyEndpoints(a, client).Endpoints[0].LbEndpoints
		if len(l) != anySize {
			t.Fatalf("%d endpoints", len(l))
		}
		for _, e := range l {
			uses[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()]++
		}
	}
	// 200 clients of 20 on 97 tasks: 41 each.
	for _, n := range uses {
		if n < 20 || n > 70 {
			t.Errorf("a task has %d clients, about 41 are its share", n)
		}
	}
	if len(uses) != 97 {
		t.Errorf("%d tasks are used, want the 97 that run and have addresses", len(uses))
	}
}

func TestBook(t *testing.T) {
	now := time.UnixMilli(baseGen)
	b := newBook("web")
	find := func(k kind, name string) *resource {
		r, _ := b.find(now, k, name, flavor{}, func() *resource { return nil })
		return r
	}
	if _, v := b.find(now, listeners, "web", flavor{}, nil); v != isPending {
		t.Error("before there is an assignment it is known that there is no listener")
	}
	first := dealt(t, baseGen, 3, 9)
	b.set(now, first, usual)
	was := b.routes[byExpression]
	if find(listeners, "web") == nil || find(routes, "web") != was || find(clusters, "web/own:web-0.a0") == nil || find(clusters, "web/task:web-0.a0") == nil || find(clusters, "web/any") == nil {
		t.Error("something is missing")
	}
	for _, name := range []string{"web", "web/", "web/any.", "web/task:", "web/task:web-0", "web/task:web-0.a1", "web/task:web-0.", "web/task:.a0", "web/other:web-0.a0", "web/web-0.a0", "other/any"} {
		if find(clusters, name) != nil {
			t.Errorf("there is a cluster %q", name)
		}
	}
	// The same routes in a newer generation are the same resource.
	if !b.set(now, dealt(t, baseGen+1, 3, 9), usual) || b.routes[byExpression] != was {
		t.Error("the same routes are sent again")
	}
	if b.set(now, first, usual) {
		t.Error("an older generation took the place of a newer one")
	}
	// A task leaves: its clusters stay for a while.
	b.set(now, dealt(t, baseGen+2, 2, 8), usual)
	gone := find(clusters, "web/own:web-2.a2")
	if b.routes[byExpression] == was || gone == nil {
		t.Error("a task that has left is forgotten at once, or still routed to")
	}
	now = now.Add(departedFor + time.Second)
	if find(clusters, "web/task:web-2.a2") != nil || find(clusters, "web/task:web-1.a1") == nil {
		t.Error("a task that has left is known for ever, or one that stays is not")
	}
	b.set(now, dealt(t, baseGen+3, 2, 4), usual)
	if len(b.departed) != 0 || b.made[ring]["web/own:web-2.a2"] != nil {
		t.Error("what has left is kept")
	}
	// A job that comes to be refused leaves clients what they have.
	b.set(now, dealt(t, baseGen+3, 2, 4), Terms{Consistent: true, Config: usual.Config})
	if _, v := b.find(now, routes, "web", flavor{}, nil); v != isKept || b.refusal != refusedConsistent {
		t.Error("a job in consistent mode is served")
	}
	b.set(now, dealt(t, baseGen+4, 2, 4), usual)
	if find(routes, "web") == nil {
		t.Error("a job that is in affinity mode again is not served")
	}
}
