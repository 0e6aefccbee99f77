package sim_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"github.com/slicer-project/slicer/loadbalance/sim"
)

// window is one for comparing.
type window struct {
	StartMS int64
	Load    map[assignment.SliceKey]float64
}

// cut is a trace's windows, its reader and what they end with.
func cut(t interface{ Fatal(...any) }, trace string, intervalMS int64) (all []window, r *sim.TraceReader, err error) {
	r, err = sim.NewTraceReader("t", strings.NewReader(trace))
	if err != nil {
		t.Fatal(err)
	}
	src, err := sim.Windows(r, intervalMS)
	if err != nil {
		t.Fatal(err)
	}
	for {
		w, err := src.Next()
		if err == io.EOF {
			return all, r, nil
		}
		if err != nil {
			return all, r, err
		}
		x := window{w.StartMS, map[assignment.SliceKey]float64{}}
		for i, k := range w.Keys {
			x.Load[k] = w.Load[i]
		}
		if !slices.IsSorted(w.Keys) || len(x.Load) != len(w.Load) {
			t.Fatal("keys are not distinct and in order")
		}
		all = append(all, x)
	}
}

// TestWindows checks how records are cut into rounds.
func TestWindows(t *testing.T) {
	got, _, err := cut(t, "1000,a,1\n1500,b,2\n900,a,4\n2000,a,8\n1999,b,32\n9100,c,16\n", 1000)
	a, b, c := assignment.KeyOf("a"), assignment.KeyOf("b"), assignment.KeyOf("c")
	want := []window{
		{1000, map[assignment.SliceKey]float64{a: 5, b: 34}},
		{2000, map[assignment.SliceKey]float64{a: 8}},
		{9000, map[assignment.SliceKey]float64{c: 16}},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// Records count in the window of their time, in whatever order they come, but for
// those that come too late.
func TestWindowsOutOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := rapid.SampledFrom([]int64{100, 1000, 60_000, 300_000}).Draw(t, "interval")
		slack := max(interval, 60_000)
		latest := rapid.SampledFrom([]int64{0, slack, slack + slack/8}).Draw(t, "latest")
		gap := rapid.SampledFrom([]int64{1, interval, 9 * interval}).Draw(t, "gap")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		type record struct{ at, written, load int64 }
		var records []record
		for at, i := int64(0), rapid.IntRange(1, 300).Draw(t, "records"); i > 0; i-- {
			at += rng.Int64N(gap + 1)
			records = append(records, record{at, at + rng.Int64N(latest+1), int64(i)})
		}
		slices.SortStableFunc(records, func(a, b record) int { return int(a.written - b.written) })
		var trace strings.Builder
		want := make(map[int64]map[assignment.SliceKey]float64)
		newest, early := int64(0), 0
		for _, r := range records {
			key := fmt.Sprint("k", r.load%7)
			fmt.Fprintf(&trace, "%d,%s,%d\n", r.at, key, r.load)
			newest = max(newest, r.at)
			if r.at < newest-slack {
				early++
				continue
			}
			start := records[0].at
			start += max(r.at-start, 0) / interval * interval
			if want[start] == nil {
				want[start] = make(map[assignment.SliceKey]float64)
			}
			want[start][assignment.KeyOf(key)] += float64(r.load)
		}
		got, r, err := cut(t, trace.String(), interval)
		if r.Early.Count != early || r.Early.Of != len(records) || (err != nil) != (early > 10 && early*100 > len(records)) {
			t.Fatalf("%v; left out %v, want %d; %v", err, &r.Early, early, trace.String())
		}
		last := int64(math.MinInt64)
		for _, w := range got {
			if d := cmp.Diff(want[w.StartMS], w.Load); d != "" || w.StartMS <= last {
				t.Fatalf("window at %d after %d: %s", w.StartMS, last, d)
			}
			last = w.StartMS
		}
		if len(got) != len(want) {
			t.Fatalf("%d windows, want %d", len(got), len(want))
		}
	})
}

// Traces that are not in order of time are refused with what to do.
func TestOrder(t *testing.T) {
	line := func(i int) string { return fmt.Sprintf("%d,k,1\n", i*1000) }
	trace := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, line(i))
		}
		return lines
	}
	rotated := slices.Concat(trace(4000)[2000:], trace(4000)[:2000])
	reversed := trace(4000)
	slices.Reverse(reversed)
	few := func(n, early int) []string { return append(trace(n-early), slices.Repeat([]string{line(0)}, early)...) }
	for _, c := range []struct {
		name        string
		lines       []string
		early, line int
		fails       bool
	}{
		{"in order", trace(100), 0, 0, false},
		{"rotated logs newest first", rotated, 2000, 2001, true},
		{"newest first", reversed, 4000 - 61, 62, true},
		{"ten", few(74, 10), 10, 65, false},
		{"eleven", few(75, 11), 11, 65, true},
		{"eleven of 1,100", few(1100, 11), 11, 1090, false},
		{"eleven of 1,099", few(1099, 11), 11, 1089, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r, err := cut(t, strings.Join(c.lines, ""), 1000)
			e := r.Early
			if e.Count != c.early || e.Of != len(c.lines) || (err != nil) != c.fails || (e.First != nil) != (c.early > 0) || e.First != nil && (e.First.Line != c.line || e.First.Field != "unix_ms") {
				t.Fatalf("%v; %v", err, &e)
			}
			if c.fails && (!strings.Contains(err.Error(), "oldest first") || !errors.Is(err, e.First)) {
				t.Error(err)
			}
		})
	}
}

// FuzzTrace has any bytes refused, or read and cut into windows that hold all that
// was not left out.
func FuzzTrace(f *testing.F) {
	for _, s := range []string{
		"", "hello", csvTrace, logTrace, "\xef\xbb\xbf1,a,1\r\n", "1,a,1\n1,\"a\n\nb\",2\n", "1700000000,a,1\n", "1,a,1\n1700000000000000,a,1\n",
		"4000000,a,1\n0,b,1\n0,b,1\n", "-1,a,1e15\n0,a,NaN\n", "cut off\n" + logTrace + "\nx - - [10/Oct/1999:13:55:36 -0700] \"GET / HTTP/1.0\"",
	} {
		f.Add([]byte(s), int64(1000))
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		f.Add(b.Bytes(), int64(3_600_000))
		f.Add(b.Bytes()[:b.Len()-9], int64(100))
	}
	f.Fuzz(func(t *testing.T, in []byte, intervalMS int64) {
		r, err := sim.NewTraceReader("t", bytes.NewReader(in))
		if err != nil {
			return
		}
		records, readErr := readAll(r)
		total := 0.0
		for _, rec := range records {
			if rec.Key == "" || !(rec.Load >= 0 && rec.Load <= 1e15) {
				t.Fatalf("%+v", rec)
			}
			total += rec.Load
		}
		if intervalMS < 100 || intervalMS > 3_600_000 || readErr != nil {
			return
		}
		windows, r, err := cut(t, string(in), intervalMS)
		if r.Early.Of != len(records) || (err != nil) != (r.Early.Count > 10 && r.Early.Count*100 > len(records)) {
			t.Fatalf("%d records, %v, %v", len(records), err, &r.Early)
		}
		sum, last := 0.0, int64(math.MinInt64)
		for _, w := range windows {
			if w.StartMS < last || len(w.Load) == 0 {
				t.Fatalf("window at %d after one until %d, %d keys", w.StartMS, last, len(w.Load))
			}
			last = w.StartMS + intervalMS
			for _, x := range w.Load {
				sum += x
			}
		}
		if sum > total*(1+1e-9) || r.Early.Count == 0 && sum < total*(1-1e-9) {
			t.Fatalf("load %g of %g, %v", sum, total, &r.Early)
		}
	})
}
