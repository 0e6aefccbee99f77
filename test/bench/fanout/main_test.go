package fanout

import (
	"testing"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/distributor/crowdtest"
)

func TestMain(m *testing.M) {
	if crowdtest.Main() || reportersMain() {
		return
	}
	etcdtest.Main(m)
}
