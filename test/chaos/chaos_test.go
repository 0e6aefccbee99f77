//go:build system

package chaos

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/test/chaos/record"
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
	from := lease.Boottime()
	for _, p := range phases {
		if !wanted.MatchString(p.name) {
			continue
		}
		b.now = p.name
		p.run(b, *phaseFlag)
		now := lease.Boottime()
		done = append(done, Phase{p.name, from, now})
		from = now
	}
	if len(done) == 0 {
		t.Fatalf("no phase has a name like %q", wanted)
	}
	results := Judge(b.end(), done, b.calls())
	t.Log("\n" + Table(results))
	for _, r := range results {
		if r.Routing < Limit || r.Judged == 0 {
			t.Errorf("%s: routing availability %.4f %%, %d calls judged; want at least %.2f %%\n\t%s", r.Phase, 100*r.Routing, r.Judged, 100*Limit, strings.Join(r.Examples, "\n\t"))
		}
	}
	return results
}

// rolled is what a rolling restart may do: 20 of 30 servers give away what they
// have, and get it back.
func rolled(t *testing.T, r Result) {
	const restarted, all = singles, singles + crowds*crowd
	if moved, limit := r.Moved*all/restarted, 2.2; moved > limit || r.Lost > 0 || r.Raw < 1 {
		t.Errorf("%s: %.2f of the keyspace of those that restarted moved, want at most %.1f; %.4f %% answered, want all", r.Phase, moved, limit, 100*r.Raw)
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
func (b *bed) end() *World {
	var wg sync.WaitGroup
	for _, c := range b.clients {
		wg.Go(func() { c.End(30 * time.Second) })
	}
	wg.Wait()
	b.world.Assignments = b.watch.stored()
	return &b.world
}

func (b *bed) calls() (calls []record.Call) {
	for _, c := range b.clients {
		lines, err := record.Read(c.log)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, l := range lines {
			if l.Call != nil {
				calls = append(calls, *l.Call)
			}
		}
	}
	return calls
}
