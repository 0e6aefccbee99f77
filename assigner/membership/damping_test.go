package membership

import (
	"fmt"
	"testing"
	"time"

	_ "github.com/slicer-project/slicer/assignment/seedtest" // rapid's seed
	"pgregory.net/rapid"

	"github.com/slicer-project/slicer/assignment"
)

// pen is a table with one Distributor, and tasks that report each second.
type pen struct {
	table *Table
	now   time.Duration
	up    map[string]*proc
	born  uint64
}

func newPen(cfg Config, tasks int) *pen {
	p := &pen{table: New(cfg, 0, nil), up: map[string]*proc{}}
	p.table.Attach(0, 1, "d")
	p.table.Report(0, 1, true, nil)
	for i := range tasks {
		p.start(fmt.Sprint(i))
	}
	p.pass(5 * time.Second)
	return p
}

func (p *pen) start(name string) {
	p.born++
	p.up[name] = &proc{task: assignment.Task{Name: name, Incarnation: p.born, Address: "x:1", Weight: 1, State: assignment.TaskRunning}}
	p.report(name)
}

func (p *pen) report(name string) {
	x := p.up[name]
	x.seq++
	p.table.Report(p.now, 1, false, []Report{{Task: x.task, Said: true, Sequence: x.seq, State: x.task.State}})
}

// stop ends a task whose Distributor sees its stream end.
func (p *pen) stop(name string) {
	x := p.up[name]
	delete(p.up, name)
	p.table.Report(p.now, 1, false, []Report{{Task: x.task, Disconnected: true}})
}

func (p *pen) pass(d time.Duration) {
	for end := p.now + d; p.now < end; {
		p.now = min(end, p.now+250*time.Millisecond)
		p.table.Heard(p.now, 1, p.now)
		if p.now%time.Second == 0 {
			for _, name := range names(p.up) {
				p.report(name)
			}
		}
		p.table.Advance(p.now)
	}
}

func names(m map[string]*proc) (out []string) {
	for i := range 100 {
		if n := fmt.Sprint(i); m[n] != nil {
			out = append(out, n)
		}
	}
	return out
}

func (p *pen) state(name string) Status {
	for _, s := range p.table.Statuses(p.now) {
		if s.Task.Name == name {
			return s
		}
	}
	return Status{}
}

func (p *pen) running() (n int) {
	for _, k := range p.table.roster.tasks {
		if k.shown() == assignment.TaskRunning {
			n++
		}
	}
	return n
}

func (p *pen) damped() (n int) {
	for _, s := range p.table.Statuses(p.now) {
		if s.Damped > 0 && s.Task.State == assignment.TaskStarting {
			n++
		}
	}
	return n
}

func TestFlappingTaskIsDamped(t *testing.T) {
	p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, 8)
	for crash := 1; crash <= 3; crash++ {
		if s := p.state("0"); s.Task.State != assignment.TaskRunning {
			t.Fatalf("after %d crashes it is %s", crash-1, s.Task.State)
		}
		p.stop("0")
		p.start("0")
		p.pass(2 * time.Second)
	}
	s := p.state("0")
	if s.Task.State != assignment.TaskStarting || s.Damped < 50*time.Second || s.Damped > time.Minute {
		t.Fatalf("after 3 crashes it is %s, damped for %s", s.Task.State, s.Damped)
	}
	// A fourth one makes it longer.
	p.stop("0")
	p.start("0")
	if more := p.state("0").Damped; more <= s.Damped {
		t.Fatalf("damped for %s after the fourth crash, %s before it", more, s.Damped)
	}
	wait := p.state("0").Damped
	p.pass(wait - time.Second)
	if s := p.state("0"); s.Task.State != assignment.TaskStarting {
		t.Fatalf("a second too early it is %s", s.Task.State)
	}
	p.pass(2 * time.Second)
	if s := p.state("0"); s.Task.State != assignment.TaskRunning || s.Damped != 0 {
		t.Fatalf("in the end it is %s, damped for %s", s.Task.State, s.Damped)
	}
}

func TestDrainedRestartsAreNotDamped(t *testing.T) {
	p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, 8)
	for range 10 {
		p.up["0"].task.State = assignment.TaskDraining
		p.report("0")
		p.pass(time.Second)
		p.stop("0")
		p.start("0")
		p.pass(time.Second)
		if s := p.state("0"); s.Task.State != assignment.TaskRunning {
			t.Fatalf("it is %s", s.Task.State)
		}
	}
}

// In a small job one task may be damped, if another runs.
func TestSmallJobsAreDamped(t *testing.T) {
	for n := 1; n <= 3; n++ {
		p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, n)
		crash := func(name string) {
			for range 4 {
				p.stop(name)
				p.start(name)
				p.pass(2 * time.Second)
			}
		}
		for i := range n {
			crash(fmt.Sprint(i))
		}
		if want := min(1, n-1); p.damped() != want || p.running() != n-want {
			t.Errorf("of %d tasks that all failed again and again %d are damped, %d run", n, p.damped(), p.running())
		}
	}
	none := newPen(Config{HeartbeatTimeout: 5 * time.Second, Damping: assignment.DampingConfig{Share: -1}}, 3)
	for range 5 {
		none.stop("0")
		none.start("0")
		none.pass(2 * time.Second)
	}
	if none.damped() != 0 {
		t.Error("a task is damped though the share is 0")
	}
}

// A damped task owns slices all the same when those that ran drain, or die.
func TestNobodyIsDampedAlone(t *testing.T) {
	for how, end := range map[string]func(p *pen){
		"drains": func(p *pen) { p.up["0"].task.State = assignment.TaskDraining },
		"dies":   func(p *pen) { p.stop("0") },
	} {
		p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, 2)
		for range 6 {
			p.stop("1")
			p.start("1")
			p.pass(2 * time.Second)
		}
		if s := p.state("1"); p.damped() != 1 || s.Damped < time.Minute {
			t.Fatalf("after 6 crashes 1 is %s, damped for %s", s.Task.State, s.Damped)
		}
		end(p)
		p.table.Events()
		p.pass(10 * time.Second)
		if s := p.state("1"); s.Task.State != assignment.TaskRunning {
			t.Errorf("when 0 %s, 1 is %s, damped for %s", how, s.Task.State, s.Damped)
		}
		if e := p.table.Events(); e[len(e)-1].Kind != Undamped {
			t.Errorf("when 0 %s: %v", how, e)
		}
	}
}

// Another table goes on from where one was, and forgets what is long ago.
func TestPenaltiesGoOn(t *testing.T) {
	p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, 8)
	for range 3 {
		p.stop("2")
		p.start("2")
		p.pass(2 * time.Second)
	}
	p.stop("3")
	p.start("3")
	all := p.table.Penalties(10)
	if len(all) != 2 || all[0].Task != "2" || !all[0].Damped || all[1].Task != "3" || all[1].Damped || all[1].Amount != 1 {
		t.Fatalf("penalties %+v", all)
	}
	if most := p.table.Penalties(1); len(most) != 1 || most[0] != all[0] {
		t.Errorf("the largest is %+v", most)
	}
	before := p.state("2").Damped
	for ago, want := range map[time.Duration]time.Duration{0: before, 10 * time.Second: before - 10*time.Second, -time.Hour: before, time.Hour: 0} {
		next := &pen{table: New(Config{HeartbeatTimeout: 5 * time.Second}, 0, nil), now: p.now, up: p.up}
		next.table.Attach(p.now, 1, "d")
		next.table.Recall(p.now, []Penalty{{Task: "nobody", Amount: 6, Damped: true}}, 0)
		next.table.Report(p.now, 1, true, nil)
		for _, name := range names(p.up) {
			next.report(name)
		}
		next.table.Recall(p.now, all, ago)
		s := next.state("2")
		if d := (s.Damped - want).Abs(); d > 100*time.Millisecond || (want > 0) != (s.Task.State == assignment.TaskStarting) {
			t.Errorf("recalled %s later it is %s and damped for %s, want %s", ago, s.Task.State, s.Damped, want)
		}
		// What is lower than known here changes nothing.
		next.table.Recall(p.now, []Penalty{{Task: "2", Amount: .1}}, 0)
		if again := next.state("2").Damped; again != s.Damped {
			t.Errorf("a lower penalty makes %s of %s", again, s.Damped)
		}
	}
}

// That a task was taken for dead which spoke to another assigner does not count against
// it.
func TestFalseDeathsAreTakenBack(t *testing.T) {
	p := newPen(Config{HeartbeatTimeout: 5 * time.Second}, 8)
	p.stop("1")
	p.start("1")
	for range 3 {
		p.pass(time.Second)
		before := p.table.Penalties(10)[0].Amount
		elsewhere := p.up["1"]
		delete(p.up, "1")
		alive := p.table.Tasks()
		p.pass(12 * time.Second)
		if s := p.state("1"); s.Task.State != assignment.TaskDead {
			t.Fatalf("after a silence of 12s it is %s", s.Task.State)
		}
		a, err := assignment.New(assignment.Header{Job: "job", StoreID: 1, Generation: 1}, alive,
			assignment.Columns{Starts: assignment.Equal(1), Owners: []uint32{0}})
		if err != nil {
			t.Fatal(err)
		}
		p.table.Stored(a, false)
		if s := p.state("1"); s.Task.State != assignment.TaskRunning {
			t.Fatalf("stored as running it is %s", s.Task.State)
		}
		if all := p.table.Penalties(10); len(all) != 1 || all[0].Amount >= before || len(p.table.freeze.deaths) > 0 {
			t.Fatalf("penalties %+v where one was %v, deaths %s", all, before, p.table.freeze.deaths)
		}
		p.up["1"] = elsewhere
	}
}

// Whatever fails, no more than a share is damped, some task runs, and one that stays up
// for long enough owns slices again.
func TestDampingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "tasks")
		p := newPen(Config{HeartbeatTimeout: 5 * time.Second, Freeze: assignment.FreezeConfig{Share: 1}}, n)
		for range rapid.IntRange(1, 40).Draw(t, "crashes") {
			name := fmt.Sprint(rapid.IntRange(0, n-1).Draw(t, "which") % rapid.IntRange(1, n).Draw(t, "of"))
			switch how := rapid.SampledFrom([]string{"end", "restart", "restart", "drain"}).Draw(t, "how"); {
			case p.up[name] == nil:
				p.start(name)
			case how == "drain":
				p.up[name].task.State = assignment.TaskDraining
			case how == "end":
				p.stop(name)
			default:
				p.stop(name)
				p.start(name)
			}
			p.pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "pass")) * 250 * time.Millisecond)
			up := 0
			for _, s := range p.table.Statuses(p.now) {
				if s.Task.State != assignment.TaskDead {
					up++
				}
			}
			running, damped := p.running(), p.damped()
			// Those that end while others are damped may leave the share too large.
			if damped > max(1, (n+3)/4) || damped > 0 && running == 0 {
				t.Fatalf("%d of %d tasks are damped, %d run", damped, up, running)
			}
		}
		for i := range n {
			if name := fmt.Sprint(i); p.up[name] == nil || p.up[name].task.State == assignment.TaskDraining {
				p.start(name)
			}
		}
		p.pass(2*time.Minute + 10*time.Second)
		if r := p.running(); r != n {
			t.Fatalf("%d of %d run after two minutes without failures", r, n)
		}
	})
}
