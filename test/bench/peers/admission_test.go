package peers

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/onecore"
)

// The defaults only show that it runs.
var (
	cell  = flag.Duration("cell", 200*time.Millisecond, "how long each load is offered")
	turns = flag.Int("turns", 1, "how often each server is measured")
	takes = flag.Duration("takes", 2*time.Millisecond, "CPU time of a request")
	only  = flag.String("kinds", "limit,streams,gradient2,bbr,failsafe,slicer", "servers that are measured beside nothing")
)

// kinds are all that -kinds can name.
var kinds = []onecore.Kind{
	onecore.Nothing(),
	onecore.Limit(16),
	streams(),
	inInterceptor("gradient2", gradient2),
	inInterceptor("bbr", aegis),
	failsafe(),
	onecore.Slicer("slicer"),
	atTap("limit-tap", fixed),
	atTap("gradient2-tap", gradient2),
	atTap("bbr-tap", aegis),
	atTap("failsafe-tap", failsafePlain),
	failsafeAtTap(),
}

func TestMain(m *testing.M) {
	onecore.Serve(kinds)
	os.Exit(m.Run())
}

// BenchmarkAdmission is that of test/bench/overload with what others offer against overload,
// each set up as its documentation says (limiters_test.go), all with clients that do not know
// Slicer.
//
//	go -C test/bench/peers test -run '^$' -bench Admission -benchtime 1x -timeout 12h -cell 60s -turns 10
func BenchmarkAdmission(b *testing.B) {
	var names []string
	for _, k := range kinds[1:] {
		names = append(names, k.Name)
	}
	measured := kinds[:1:1] // without admission
	for _, name := range strings.Split(*only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			b.Fatalf("-kinds: %q is none of %s", name, strings.Join(names, ","))
		}
		measured = append(measured, kinds[1+i])
	}
	onecore.Run(b, onecore.Config{
		Kinds: measured,
		Takes: []time.Duration{*takes},
		Loads: []float64{.5, 1, 3, 10},
		Cell:  *cell,
		Turns: *turns,
	})
}
