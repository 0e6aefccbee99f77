package consistent

import (
	"testing"

	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }
