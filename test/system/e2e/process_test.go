package e2e

import (
	"os"
	"testing"

	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(appMain(role))
	}
	os.Exit(process.Main(m))
}
