package page

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// slowReader takes some time for each reading.
type slowReader struct {
	takes time.Duration
	n     int
	same  bool
}

func (r *slowReader) pause() time.Duration { return leastPause }

func (r *slowReader) read(context.Context) []part {
	time.Sleep(r.takes)
	r.n++
	number := r.n
	if r.same {
		number = 0
	}
	return []part{{event: "same", data: []byte("1")}, {event: "number", data: []byte{byte('a' + number)}}}
}

// A reader that takes long reads seldom, and never less often than mostPause says.
func TestReadersPaceThemselves(t *testing.T) {
	for _, tc := range []struct{ takes, every time.Duration }{
		{0, leastPause}, {10 * time.Millisecond, 610 * time.Millisecond}, {time.Second, mostPause + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			f, r := newFeed(stop), &slowReader{takes: tc.takes}
			done := make(chan struct{})
			go func() { defer close(done); f.run(ctx, nil, r) }()
			time.Sleep(100*tc.every + tc.takes + time.Millisecond)
			stop()
			<-done
			if r.n != 101 {
				t.Errorf("%d readings of %s in 100 times %s, want 101", r.n, tc.takes, tc.every)
			}
		})
	}
}

// What is the same keeps its version and wakes no viewer.
func TestFeedTellsNewsAlone(t *testing.T) {
	f := newFeed(func() {})
	r := &slowReader{}
	f.put(r.read(t.Context()))
	first, changed := f.now()
	f.put(r.read(t.Context()))
	second, again := f.now()
	select {
	case <-changed:
	default:
		t.Error("a new number wakes no viewer")
	}
	if first[0].version != second[0].version || first[1].version >= second[1].version {
		t.Errorf("versions %d, %d and then %d, %d", first[0].version, first[1].version, second[0].version, second[1].version)
	}
	f.put(second)
	select {
	case <-again:
		t.Error("nothing new wakes viewers")
	default:
	}
}

// A viewer that may read some jobs gets these, in their order.
func TestSomeRows(t *testing.T) {
	p := part{head: []byte("["), tail: []byte("]"), rows: []row{{"a", []byte("1")}, {"b", []byte("2")}, {"c", []byte("3")}}}
	for want, jobs := range map[string][]string{"[]": nil, "[2]": {"b", "x"}, "[1,3]": {"c", "a"}} {
		may := make(map[string]bool)
		for _, j := range jobs {
			may[j] = true
		}
		if got := string(p.only(may)); got != want {
			t.Errorf("%v: %s, want %s", jobs, got, want)
		}
	}
}

func TestChartIsBounded(t *testing.T) {
	now := time.UnixMilli(1e12)
	c := &chart{}
	for i := range 10 * chartPoints {
		c.add(now.Add(time.Duration(i)*time.Second), 1+float64(i))
	}
	if len(c.points) != chartPoints {
		t.Errorf("%d points", len(c.points))
	}
	for i, p := range c.points[1:] {
		if p.at-c.points[i].at < chartStep.Milliseconds() {
			t.Fatalf("points %d ms apart", p.at-c.points[i].at)
		}
	}
	newest := c.points[chartPoints-1]
	c.seed([]point{{1, 7}, {newest.at + 1, 9}})
	if len(c.points) != chartPoints || c.points[chartPoints-1] != newest {
		t.Error("the history takes the place of what was read")
	}
	var none *chart
	none.add(now, 1)
	none.seed(nil)
	if data := none.json(); string(data) != "[]" {
		t.Errorf("%s", data)
	}
	short := &chart{}
	short.add(now, 2)
	short.seed([]point{{now.UnixMilli() - 5, 3}})
	if data := short.json(); string(data) != "[999999999995,3,1000000000000,2]" {
		t.Errorf("%s", data)
	}
	var list []float64
	if err := json.Unmarshal(encode([]num{num(math.NaN()), num(math.Inf(1)), 1.23456, -2}), &list); err != nil || !slices.Equal(list, []float64{0, 0, 1.235, -2}) {
		t.Errorf("%v, %v", list, err)
	}
}

// random is an assignment of slices with one to three owners, some of one key.
func random(rng *rand.Rand, tasks, cuts int) *assignment.Assignment {
	var p assignment.Placement
	starts := map[assignment.SliceKey]bool{0: true}
	for range cuts {
		k := assignment.SliceKey(rng.Uint64() >> 1)
		starts[k] = true
		if rng.IntN(4) == 0 && k+1 < assignment.KeyspaceEnd {
			starts[k+1] = true
		}
	}
	p.Offsets = []uint32{0}
	for k := range starts {
		p.Starts = append(p.Starts, k)
	}
	slices.Sort(p.Starts)
	for range p.Starts {
		for _, o := range rng.Perm(tasks)[:1+rng.IntN(3)] {
			p.Owners = append(p.Owners, uint32(o))
		}
		p.Offsets = append(p.Offsets, uint32(len(p.Owners)))
	}
	var table []assignment.Task
	for i := range tasks {
		table = append(table, assignment.Task{Name: "t-" + string(rune('a'+i)), Incarnation: 1, Address: "h:1", Index: uint32(i), Weight: 1, State: assignment.TaskRunning})
	}
	a, err := assignment.Successor(nil, assignment.Header{Job: "j", StoreID: 1, Generation: 17}, table, p)
	if err != nil {
		panic(err)
	}
	return a
}

// Columns say what the assignment says, as a browser would read them.
func TestColumns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		a := random(rng, 5, rng.IntN(200))
		var c sliceColumns
		if err := json.Unmarshal(encode(newSliceColumns(a)), &c); err != nil {
			t.Fatal(err)
		}
		high, low, many, owners := unpack(t, c.High, 4), unpack(t, c.Low, 4), unpack(t, c.Replicas, 2), unpack(t, c.Owners, c.OwnerBytes)
		at := 0
		for i := range c.Count {
			start := assignment.SliceKey(high[i]) << 31
			if len(low) > 0 {
				start |= assignment.SliceKey(low[i])
			}
			n := 1
			if len(many) > 0 {
				n = int(many[i])
			}
			var names, want []string
			for _, o := range owners[at : at+n] {
				names = append(names, c.Tasks[o])
			}
			at += n
			for task := range a.Replicas(i).All() {
				want = append(want, task.Name)
			}
			if start != a.Slice(i).Start || !slices.Equal(names, want) {
				t.Fatalf("slice %d: %s of %v, want %s of %v", i, start, names, a.Slice(i), want)
			}
		}
		if c.Count != a.NumSlices() || at != len(owners) {
			t.Fatalf("%d slices with %d of %d owners", c.Count, at, len(owners))
		}
	}
}

func unpack(t *testing.T, text string, size int) (out []uint32) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for b := range slices.Chunk(data, size) {
		if size == 2 {
			out = append(out, uint32(binary.LittleEndian.Uint16(b)))
		} else {
			out = append(out, binary.LittleEndian.Uint32(b))
		}
	}
	return out
}

// Levels are right to a sixteenth of an octave, 0 and unknown are told apart from all loads,
// and the hottest are those that a sort would find. An answer that does not fit is left out.
func TestLoads(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		a := random(rng, 4, rng.IntN(100))
		m := &slicerv1.InspectSlicesResponse{Generation: 17, HotKey: []uint64{5, 1 << 63}, HotRate: []float32{2, 1}}
		var sorted []float64
		for range a.NumSlices() {
			x := float32(math.Exp2(20*rng.Float64() - 10))
			switch rng.IntN(5) {
			case 0:
				x = 0
			case 1:
				x = -1
			}
			m.Load = append(m.Load, x)
			sorted = append(sorted, float64(x))
		}
		l := newLoads(a, m)
		levels, err := base64.StdEncoding.DecodeString(l.Levels)
		if err != nil || len(levels) != a.NumSlices() {
			t.Fatalf("%d levels, %v", len(levels), err)
		}
		for i, x := range m.Load {
			told := float64(l.Top) * math.Exp2((float64(levels[i])-levelTop)/levelsDouble)
			switch {
			case x < 0 && levels[i] != levelUnknown, x == 0 && levels[i] != 0,
				x > 0 && math.Abs(math.Log2(told/float64(x))) > 1./(2*levelsDouble)+1e-3:
				t.Fatalf("load %g is told as %d, which is %g", x, levels[i], told)
			}
		}
		slices.SortFunc(sorted, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		for i, h := range l.Hot {
			if math.Abs(float64(h.Load)-sorted[i]) > 1e-3*sorted[i] {
				t.Fatalf("the hottest are %v, want %v", l.Hot, sorted[:len(l.Hot)])
			}
		}
		if len(l.Keys) != 1 || l.Keys[0].Many != a.Lookup(5).Len() {
			t.Errorf("hot keys %v", l.Keys)
		}
		m.Load = m.Load[1:]
		if l := newLoads(a, m); l.Levels != "" || len(l.Hot) > 0 {
			t.Error("loads that are not those of the slices are told")
		}
	}
}

// outside finds what would lead a browser away from the folder that the page is in, or make it
// run something that is not a file of ours.
var outside = regexp.MustCompile(`(?i)(?:src|href|import|from|fetch|EventSource)\s*[=(]?\s*["'](?:/|https?:|//)|@import|url\(|<script>|<style|\bon[a-z]+=|style="|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function`)

func TestAssetsStayInside(t *testing.T) {
	for name, a := range assets {
		if contentTypes[path.Ext(name)] == "" {
			t.Errorf("%s: what is it?", name)
		}
		for line := range bytes.Lines(a.data) {
			if m := outside.Find(line); m != nil {
				t.Errorf("%s: %q in %s", name, m, line)
			}
		}
	}
	for _, bad := range []string{`<script src="/x.js">`, `import x from "https://cdn/x"`, `<b onclick="x">`, `e.innerHTML = x`, `<b style="x">`} {
		if !outside.MatchString(bad) {
			t.Errorf("%s is not found", bad)
		}
	}
}
