package generate

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assigner/membership"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

func at(d time.Duration) Now { return Now{Mono: d, Wall: epoch.Add(d)} }

// What changes while the job is being read has it read once more.
func TestChangeDuringARead(t *testing.T) {
	c := New(Config{ID: "me"}, "job", at(0))
	if a, _ := c.Next(at(0)); a != (Load{}) {
		t.Fatalf("the first action is %v", a)
	}
	c.StoreChanged(at(1))
	c.Loaded(at(2), Loaded{})
	if _, known, _ := c.View(at(2)).Job(); known {
		t.Error("what was read before the change is believed to be all")
	}
	if a, _ := c.Next(at(3)); a != (Load{}) {
		t.Errorf("then %v", a)
	}
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	for _, id := range []string{"a", "b", "c"} {
		c := New(Config{ID: id}, "job", at(0))
		for n := range 100 {
			least, most := 100*time.Millisecond<<min(n, 6)/2, min(100*time.Millisecond<<min(n, 6), 5*time.Second)
			if d := c.backoff(n, 100*time.Millisecond, 5*time.Second); d < min(least, most/2) || d > most {
				t.Errorf("%s, %d failures: %s, want %s to %s", id, n, d, least, most)
			}
		}
	}
}

func load(window time.Duration, rates ...float64) *assignment.Load {
	l := &assignment.Load{Window: window, Parts: 1, Generation: 1}
	for i, r := range rates {
		l.Ranges = append(l.Ranges, assignment.Slice{Start: assignment.SliceKey(i), End: assignment.SliceKey(i + 1)})
		l.Rate = append(l.Rate, r)
		l.Total += r
	}
	return l
}

// A round sees the mean of what was reported since the last one, by window.
func TestMeterMeans(t *testing.T) {
	m := newMeter()
	first := load(time.Second, 10, 0)
	first.Hot = []assignment.HotKey{{Key: 1, Rate: 8, Error: 1}}
	m.add("t", 1, 1, 1, first, time.Hour)
	second := load(3*time.Second, 2, 4)
	second.Hot = []assignment.HotKey{{Key: 2, Rate: 4}}
	m.add("t", 1, 1, 2, second, time.Hour)
	m.add("t", 1, 1, 2, load(time.Second, 99, 99), time.Hour) // the same report once more
	m.add("t", 1, 1, 1, load(time.Second, 99, 99), time.Hour) // a late one
	r := m.reports()
	got := r[0].Load
	if !reflect.DeepEqual(got.Rate, []float64{4, 3}) || got.Total != 7 || got.Window != 4*time.Second {
		t.Errorf("mean %+v", got)
	}
	if want := []assignment.HotKey{{Key: 2, Rate: 3}, {Key: 1, Rate: 2, Error: .25}}; !reflect.DeepEqual(got.Hot, want) {
		t.Errorf("hot keys %v, want %v", got.Hot, want)
	}
	if !reflect.DeepEqual(first.Rate, []float64{10, 0}) {
		t.Error("a report was written to")
	}
	// What a round has been given stays as it is.
	m.add("t", 1, 1, 3, load(4*time.Second, 0, 0), time.Hour)
	if !reflect.DeepEqual(r[0].Load.Rate, []float64{4, 3}) {
		t.Error("a round's reports have changed under it")
	}
	// After a round means begin anew; other slices, and another incarnation, too.
	m.begin(func(string) bool { return true })
	if got := m.reports()[0].Load.Rate; !reflect.DeepEqual(got, []float64{2, 1.5}) {
		t.Errorf("without news: %v", got)
	}
	m.add("t", 1, 1, 4, load(time.Second, 7), time.Hour)
	if got := m.reports()[0].Load.Rate; !reflect.DeepEqual(got, []float64{7}) {
		t.Errorf("other slices: %v", got)
	}
	m.add("t", 2, 1, 1, load(time.Second, 5), time.Hour)
	if r := m.reports()[0]; r.Incarnation != 2 || r.Load.Rate[0] != 5 {
		t.Errorf("another incarnation: %+v", r)
	}
	m.begin(func(string) bool { return false })
	if len(m.reports()) != 0 || m.fresh != 0 {
		t.Error("a task that is gone is remembered")
	}
}

// What a report's window has from before the last round does not count.
func TestMeterCountsFromTheLastRound(t *testing.T) {
	m := newMeter()
	m.add("t", 1, 1, 1, load(30*time.Second, 100), time.Second)
	m.add("t", 1, 1, 2, load(time.Second, 40), 2*time.Second)
	m.add("t", 1, 1, 3, load(2*time.Second, 10), 4*time.Second)
	if got := m.reports()[0].Load.Rate; !reflect.DeepEqual(got, []float64{40}) {
		t.Errorf("mean %v, want a quarter of 100, a quarter of 40 and half of 10", got)
	}
}

// While its assigner does not know yet that it is preferred, which tasks a Distributor
// carries is remembered.
func TestSnapshotBeforePreference(t *testing.T) {
	c := New(Config{ID: "me"}, "job", at(0))
	c.Attach(at(0), 1, "d")
	c.Next(at(0))
	cfg := assignment.JobConfig{Name: "job"}.WithDefaults()
	c.Loaded(at(0), Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}, StoreID: 7})
	task := assignment.Task{Name: "t", Incarnation: 1, Address: "t:1", Weight: 1}
	for i := range 8 {
		now := at(time.Duration(i) * time.Second)
		c.Reports(now, 1, i == 0, []Report{{Report: membership.Report{Task: task, Said: true, Sequence: uint64(i), State: assignment.TaskRunning}}})
		if a, _ := c.Next(now); a != nil {
			t.Fatalf("an assigner that is not preferred does %T", a)
		}
	}
	if e := c.Outputs(); len(e.Members) > 0 || len(e.Refusals) > 0 {
		t.Errorf("it speaks: %+v", e)
	}
	c.Preferred(at(8*time.Second), "me")
	c.Next(at(8 * time.Second))
	c.Loaded(at(8*time.Second), Loaded{Exists: true, Job: store.Job{Config: cfg, Version: 1}, StoreID: 7})
	if h := c.View(at(8 * time.Second)).Holding(); h != "" {
		t.Errorf("it holds: %s", h)
	}
	c.Next(at(8 * time.Second))
	p, _ := c.Next(at(9 * time.Second))
	if _, ok := p.(*Plan); !ok {
		t.Errorf("then it does %T", p)
	}
}

// A round whose decision is the same is the same: nothing hangs on maps or time.
func TestPlansRepeat(t *testing.T) {
	run := func() string {
		s := &script{core: New(Config{ID: "me"}, "job", Now{Wall: epoch}), seq: map[string]uint64{}}
		s.job = &store.Job{Config: assignment.JobConfig{Name: "job"}.WithDefaults(), Version: 1}
		s.core.Preferred(s.now(), "me")
		s.core.Attach(s.now(), 1, "d")
		for i := range 20 {
			s.pass(t, time.Duration(i)*time.Second)
			s.report(t, 1, i == 0, fmt.Sprintf("a/1 load=%d\nb/1 load=30\nc/1 load=9\n%c/1", i*i, 'd'+i%5))
		}
		return s.out.String() + fmt.Sprint(s.stored.Checksum())
	}
	if a, b := run(), run(); a != b {
		t.Errorf("once\n%s\nand then\n%s", a, b)
	}
}
