package sidecar

import (
	"os"
	"testing"

	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }
