package distributor

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/slicer-project/slicer/distributor/crowdtest"
)

func TestMain(m *testing.M) {
	if crowdtest.Main() || processMain() {
		return
	}
	goleak.VerifyTestMain(m)
}
