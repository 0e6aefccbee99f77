package fanout

import (
	"runtime"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/distributor/internal/jobtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// partsJob is a job with a slicelet for each task that reads parts.
type partsJob struct {
	*Job
	now   time.Time
	from  Peer
	woken []uint64
	// ofAll and ofOne are how often the Steps took memory that took most: those of what all
	// wait for, and those about one subscriber.
	ofAll, ofOne uint64
}

func newPartsJob() *partsJob {
	p := &partsJob{Job: NewJob(Config{Name: testJob, Distributor: "d"}), now: epoch, from: Peer{Session: 1, ID: "a"}}
	p.step(Peers{Preferred: p.from, Target: p.from})
	p.step(Answered{From: p.from, Status: &slicerv1.JobStatus{Job: testJob}})
	return p
}

// step is a Step, with its answer.
func (p *partsJob) step(e Event) (answer Action) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	actions := p.Step(p.now, e)
	runtime.ReadMemStats(&after)
	most := &p.ofOne
	if _, all := e.(Offered); all {
		most = &p.ofAll
	}
	*most = max(*most, after.Mallocs-before.Mallocs)
	for _, a := range actions {
		switch a := a.(type) {
		case Wake:
			p.woken = append(p.woken, a.ID)
		case Send, CutPart:
			answer = a
		}
	}
	return answer
}

// join lets the slicelets of an assignment's tasks in, which hold the parts of held, nil for
// nothing. Their numbers are their positions and one more.
func (p *partsJob) join(a *assignment.Assignment, held *assignment.Cut) {
	for i, t := range a.Tasks() {
		h := Hello{Job: testJob, Role: slicerv1.Role_ROLE_SLICELET, Name: t.Name, Parts: true, Report: running(1), Task: &slicerv1.Task{Name: t.Name, Incarnation: t.Incarnation, Weight: 1}}
		if held != nil {
			part := held.Part(t.Name)
			h.Held, h.Checksum = versionOf(part), part.Checksum()
		}
		p.step(Came{ID: uint64(i + 1), Hello: h})
	}
}

// serve sends those that have been woken what they lack, which they take, and says how many parts
// there were.
func (p *partsJob) serve() (parts int) {
	for len(p.woken) > 0 {
		id := p.woken[0]
		p.woken = p.woken[1:]
		for {
			answer := p.step(Ready{id})
			for c, ok := answer.(CutPart); ok; c, ok = answer.(CutPart) {
				answer = p.step(c.Cut())
			}
			send, ok := answer.(Send)
			if !ok {
				break
			}
			if send.Kind == KindPart {
				parts++
				p.step(Acked{ID: id, Gen: p.Newest().Generation()})
			}
		}
	}
	return parts
}

// No Step cuts parts, which others would wait for: not when all slicelets are to be sent theirs,
// and not when it is found, all at once, that they have it already.
func TestNoStepCutsParts(t *testing.T) {
	first := firstOf(t, testJob, testStore, baseGen, assignment.PartFrom)
	second := after(t, first, 2000)
	n := first.NumTasks()
	for _, c := range []struct {
		name   string
		held   *assignment.Assignment
		offers []*assignment.Assignment
		parts  int
	}{
		{"they hold nothing", nil, []*assignment.Assignment{first, second}, 2 * n},
		{"they hold the newest", second, []*assignment.Assignment{second}, 0},
	} {
		p := newPartsJob()
		var held *assignment.Cut
		if c.held != nil {
			held = assignment.NewCut(c.held)
		}
		p.join(first, held)
		p.serve()
		parts := 0
		p.ofAll, p.ofOne = 0, 0
		for _, a := range c.offers {
			a.Checksum()
			p.step(Offered{From: p.from, Assignment: a})
			parts += p.serve()
		}
		if parts != c.parts {
			t.Errorf("%s: %d parts were sent, want %d", c.name, parts, c.parts)
		}
		// One that is woken takes one or two, and what is to be encoded a few; a part takes
		// more than ten, and what leads to it more than thirty.
		if most := uint64(4 * n); p.ofAll > most || p.ofOne > 20 {
			t.Errorf("%s: a Step takes memory %d times for all, %d times for one; at most %d and 20 are allowed", c.name, p.ofAll, p.ofOne, most)
		}
	}
}

// BenchmarkStepsOfParts is the time in Steps, in which all others of the job wait, that one
// generation of 10^6 slices takes for 10^4 slicelets: of all together, and of the longest one.
// cut-us is what each costs besides, outside of them.
func BenchmarkStepsOfParts(b *testing.B) {
	const n, tasks = 1_000_000, 10_000
	a := jobtest.First(b, testJob, testStore, baseGen, n)
	p := newPartsJob()
	p.join(a, nil)
	p.step(Offered{From: p.from, Assignment: a})
	p.serve()
	var steps, longest, cuts time.Duration
	timed := func(e Event) (answer Action) {
		began := time.Now()
		actions := p.Step(p.now, e)
		d := time.Since(began)
		steps, longest = steps+d, max(longest, d)
		for _, x := range actions {
			switch x := x.(type) {
			case Wake:
				p.woken = append(p.woken, x.ID)
			case Send, CutPart:
				answer = x
			}
		}
		return answer
	}
	rounds := 0
	for b.Loop() {
		rounds++
		a = after(b, a, n/1000)
		a.Checksum()
		timed(Offered{From: p.from, Assignment: a})
		for _, id := range p.woken {
			answer := timed(Ready{id})
			for c, ok := answer.(CutPart); ok; c, ok = answer.(CutPart) {
				began := time.Now()
				cut := c.Cut()
				cuts += time.Since(began)
				answer = timed(cut)
			}
			timed(Acked{ID: id, Gen: a.Generation()})
		}
		p.woken = nil
	}
	b.ReportMetric(float64(steps.Milliseconds())/float64(rounds), "steps-ms")
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
	b.ReportMetric(float64(cuts.Microseconds())/float64(rounds*tasks), "cut-us")
}
