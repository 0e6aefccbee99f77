package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// quantity is what is sampled of a process, and by how much its lower quartile may be more in
// the last third of a soak than in the second, beside a tenth.
type quantity struct {
	name   string
	metric string // that it is read from
	unit   float64
	slack  float64
}

var quantities = []quantity{
	{"goroutines", "go_goroutines", 1, 50},
	{"descriptors", "process_open_fds", 1, 50},
	// Go gives back what a burst took minutes later: a leak shows in the heap.
	{"resident MiB", "process_resident_memory_bytes", 1 << 20, 32},
	{"heap MiB", "go_memstats_heap_inuse_bytes", 1 << 20, 8},
	{"series", "series", 1, 100},
	{"database MiB", "etcd_mvcc_db_total_size_in_bytes", 1 << 20, 1},
	{"keys", "keys", 1, 50},
	{"directory MiB", "directory", 1 << 20, 10},
}

// scraped is a process with its samples.
type scraped struct {
	name, url string
	dir       string // of its store, if it has one
	samples   []map[string]float64
	missed    int
}

// sample scrapes all processes once.
func (s *soak) sample(ctx context.Context) {
	var wg sync.WaitGroup
	for _, x := range s.scraped {
		wg.Go(func() {
			m, err := fetch(x.url)
			if err != nil {
				x.missed++
				return
			}
			if x.name == "etcd" {
				if resp, err := s.etcd.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly()); err == nil {
					m["keys"] = float64(resp.Count)
				}
			}
			if x.dir != "" {
				m["directory"] = size(x.dir)
			}
			x.samples = append(x.samples, m)
		})
	}
	wg.Wait()
}

// size is that of all files below dir, in bytes. Files come and go meanwhile.
func size(dir string) (n float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if i, err := d.Info(); err == nil {
				n += float64(i.Size())
			}
		}
		return nil
	})
	return n
}

// parse reads what has no labels on a page of metrics, and counts the series.
func parse(r io.Reader) (map[string]float64, error) {
	m := map[string]float64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l := lines.Text()
		if strings.HasPrefix(l, "#") {
			continue
		}
		m["series"]++
		if name, value, ok := strings.Cut(l, " "); ok && !strings.Contains(name, "{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", l, err)
			}
			m[name] = v
		}
	}
	return m, lines.Err()
}

// quartiles are the lower ones of so many equal parts of the samples, and the most of all; ok is
// false if there are none of this quantity. What leaks does not go away, and shows in the samples
// between attacks. These hold thousands of connections for half of the time: averages of
// goroutines are off by a third, and medians are now those of attacks (545) and now of the time
// between (153).
func (x *scraped) quartiles(q quantity, parts int) (lower []float64, most float64, ok bool) {
	n := len(x.samples)
	if n < parts {
		return nil, 0, false
	}
	for i := range parts {
		var all []float64
		for _, m := range x.samples[n*i/parts : n*(i+1)/parts] {
			v, has := m[q.metric]
			ok = ok || has
			all = append(all, v/q.unit)
		}
		slices.Sort(all)
		lower = append(lower, all[len(all)/4])
		most = max(most, all[len(all)-1])
	}
	return lower, most, ok
}

// grown names the quantities that are not flat.
func (x *scraped) grown() (all []string) {
	for _, q := range quantities {
		lower, _, ok := x.quartiles(q, 3)
		if !ok {
			continue
		}
		if bound := lower[1]*1.1 + q.slack; lower[2] > bound {
			finer, _, _ := x.quartiles(q, min(len(x.samples), 18))
			all = append(all, fmt.Sprintf("%s: %s grow: %.1f in the last third, %.1f in the second, at most %.1f are allowed; %.1f",
				x.name, q.name, lower[2], lower[1], bound, finer))
		}
	}
	if n := len(x.samples); x.missed > n/10 || n < 3 {
		all = append(all, fmt.Sprintf("%s: %d samples, and %d scrapes failed", x.name, n, x.missed))
	}
	return all
}

func table(all []*scraped) string {
	var t strings.Builder
	fmt.Fprintf(&t, "%-14s %-14s %9s %9s %9s %9s\n", "process", "quantity", "1st third", "2nd third", "3rd third", "most")
	for _, x := range all {
		for _, q := range quantities {
			if lower, most, ok := x.quartiles(q, 3); ok {
				fmt.Fprintf(&t, "%-14s %-14s %9.1f %9.1f %9.1f %9.1f\n", x.name, q.name, lower[0], lower[1], lower[2], most)
			}
		}
	}
	return t.String()
}

// TestGrown is a soak's verdict on what grows, on what does not, and on what could not be
// scraped.
func TestGrown(t *testing.T) {
	of := func(f func(i int) float64) *scraped {
		x := &scraped{name: "x"}
		for i := range 120 {
			page := fmt.Sprintf("# HELP go_goroutines n\ngo_goroutines %g\na{b=\"c d\"} 1\n", f(i))
			m, err := parse(strings.NewReader(page))
			if err != nil {
				t.Fatal(err)
			}
			x.samples = append(x.samples, m)
		}
		return x
	}
	for name, c := range map[string]struct {
		f    func(i int) float64
		flat bool
	}{
		"flat":                     {func(int) float64 { return 1000 }, true},
		"in waves":                 {func(i int) float64 { return 1000 + 500*float64(i%4) }, true},
		"half attacks":             {func(i int) float64 { return 150 + 400*float64(min(i%20*(20+i/40)/220, 1)) }, true},
		"with bursts":              {func(i int) float64 { return 1000 + 5000*float64(i/100*(i%2)*(i%3)) }, true},
		"warming up":               {func(i int) float64 { return 1000 + 25*float64(min(i, 40)) }, true},
		"growing":                  {func(i int) float64 { return 1000 + 10*float64(i) }, false},
		"in two steps":             {func(i int) float64 { return 1000 + 400*float64(i/80) }, false},
		"half attacks and growing": {func(i int) float64 { return 150 + 400*float64(i/10%2) + 2*float64(i) }, false},
	} {
		if got := of(c.f).grown(); (len(got) == 0) != c.flat {
			t.Errorf("%s: %v", name, got)
		}
	}
	x := of(func(int) float64 { return 1 })
	if x.missed = 20; len(x.grown()) == 0 {
		t.Error("20 of 140 scrapes failed, and that is as good as none")
	}
}
