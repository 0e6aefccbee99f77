//go:build system

package chaos

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/chaos/record"
)

var (
	phaseFlag  = flag.Duration("chaos.phase", 10*time.Second, "how long a phase lasts, at least")
	phasesFlag = flag.String("chaos.phases", "", "regular expression for the names of the phases to run")
	seedFlag   = flag.Uint64("chaos.seed", 1, "seed of what is drawn; real processes run as they like all the same")
	rateFlag   = flag.Int("chaos.rate", 20, "calls per second of each of the 15 clients")
	jsonFlag   = flag.String("chaos.json", "", "file for the results")
)

// TestChaos is the run.
func TestChaos(t *testing.T) {
	wanted, err := regexp.Compile(*phasesFlag)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("-chaos.seed=%d", *seedFlag)
	b := newBed(t, *seedFlag, *rateFlag)
	results := b.play(phases, wanted)
	for _, r := range results {
		if strings.HasPrefix(r.Phase, "rolling") {
			rolled(t, r)
		}
	}
	report(t, results)
}

// play runs phases, and judges them.
func (b *bed) play(phases []phase, wanted *regexp.Regexp) []Result {
	t := b.t
	t.Helper()
	var done []Phase
	from := boottime.Now()
	for _, p := range phases {
		if !wanted.MatchString(p.name) {
			continue
		}
		b.now = p.name
		p.run(b, *phaseFlag)
		now := boottime.Now()
		done = append(done, Phase{p.name, from, now})
		from = now
	}
	if len(done) == 0 {
		t.Fatalf("no phase has a name like %q", wanted)
	}
	world, calls := b.end()
	results := Judge(world, done, calls)
	t.Log("\n" + Table(results))
	for _, r := range results {
		if r.Routing < Limit || r.Judged == 0 {
			t.Errorf("%s: routing availability %.4f %%, %d calls judged; want at least %.2f %%\n\t%s", r.Phase, 100*r.Routing, r.Judged, 100*Limit, strings.Join(r.Examples, "\n\t"))
		}
		if r.FalseDeaths > 0 {
			t.Errorf("%s: %d times was a task taken for dead that was not\n\t%s", r.Phase, r.FalseDeaths, strings.Join(r.Examples, "\n\t"))
		}
	}
	return results
}

// rolled is what a rolling restart may do. What servers give away when they leave goes
// to others, and in part back when they return, which comes after the restart for the
// most part: 1 to 1.15 of what they had was measured.
func rolled(t *testing.T, r Result) {
	if moved, limit := r.Moved/r.Left, 1.5; !(moved <= limit) || r.Lost > 0 || r.Raw < 1 {
		t.Errorf("%s: %.2f of what those owned that restarted moved, want at most %.1f; %.4f %% answered, want all", r.Phase, moved, limit, 100*r.Raw)
	}
}

func report(t *testing.T, results []Result) {
	if *jsonFlag == "" {
		return
	}
	data, err := json.MarshalIndent(results, "", "  ")
	if err == nil {
		err = os.WriteFile(*jsonFlag, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// end has clients finish, and returns what the judge is to know.
func (b *bed) end() (*World, []record.Call) {
	var wg sync.WaitGroup
	for _, c := range b.clients {
		wg.Go(func() { c.End(30 * time.Second) })
	}
	wg.Wait()
	w := &b.world
	w.Assignments = b.watch.stored()
	var calls []record.Call
	var stood time.Duration
	for _, g := range slices.Concat(b.clients, b.servers) {
		lines, err := record.Read(g.log)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, l := range lines {
			if l.Call != nil {
				calls = append(calls, *l.Call)
			}
			if l.Still != nil {
				stood += l.Still.To - l.Still.From
				for _, n := range g.names {
					w.Down[n] = append(w.Down[n], Span(*l.Still))
				}
			}
		}
	}
	b.t.Logf("%d processes stood still for %.1f s altogether", len(b.clients)+len(b.servers), stood.Seconds())
	return w, calls
}
