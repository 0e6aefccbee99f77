package distributor

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/distributor/crowdtest"
)

// The properties are checked on the same cases each time; -rapid.seed=0 takes others.
func init() { _ = flag.Set("rapid.seed", "1") }

func TestMain(m *testing.M) {
	if crowdtest.Main() {
		return
	}
	goleak.VerifyTestMain(m)
}
