package subset

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// testdata/pinned holds the worked examples of the papers, testdata/frozen the
// outputs that clients of all versions must agree on. Its commands:
//
//	subsets algorithm=A backends=N size=K [missing=(..)] [lot=L] [from=m] to=m [frontends=M]
//	churn algorithm=A backends=N size=K to-backends=N to-size=K frontends=M
//	fingerprint algorithm=A
func TestTranscripts(t *testing.T) {
	for _, file := range []string{"pinned", "frozen"} {
		t.Run(file, func(t *testing.T) {
			datadriven.RunTest(t, "testdata/"+file, runTranscript)
		})
	}
}

func runTranscript(t *testing.T, d *datadriven.TestData) string {
	number := func(key string, otherwise int) int {
		d.MaybeScanArgs(t, key, &otherwise)
		return otherwise
	}
	var name string
	d.ScanArgs(t, "algorithm", &name)
	a, err := ByName(name)
	if err != nil {
		return err.Error()
	}
	if lot := number("lot", 0); lot != 0 {
		a = Rocksteadier{Lot: lot}
	}
	s := Shape{Frontends: number("frontends", 0), Backends: Dense(number("backends", 0)), Size: number("size", 0)}
	var missing []int
	if d.MaybeScanArgs(t, "missing", &missing) {
		present := slices.DeleteFunc(s.Backends.Append(nil), func(task int) bool { return slices.Contains(missing, task) })
		if s.Backends, err = Present(present); err != nil {
			return err.Error()
		}
	}
	var out strings.Builder
	switch d.Cmd {
	case "subsets":
		for m := number("from", 0); m <= number("to", 0); m++ {
			subset, err := a.Append(nil, s, m)
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&out, "%d: %v\n", m, subset)
		}
	case "churn":
		to := s
		to.Backends = Dense(number("to-backends", s.Backends.Len()))
		to.Size = number("to-size", s.Size)
		c := Compare(mustSubsets(t, a, s), mustSubsets(t, a, to))
		fmt.Fprintf(&out, "%d of %d connections dropped, %d opened; at most %d of one frontend\n",
			c.Dropped, c.Held, c.Opened, c.MostDropped)
	case "fingerprint":
		h := fnv.New64a()
		for n := 1; n <= 300; n += 1 + n/20 {
			for _, k := range []int{1, 3, 20} {
				for _, row := range mustSubsets(t, a, Shape{Frontends: 70, Backends: Dense(n), Size: k}) {
					fmt.Fprintln(h, row)
				}
			}
		}
		fmt.Fprintf(&out, "%016x\n", h.Sum64())
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	return out.String()
}
