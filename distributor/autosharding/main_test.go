package autosharding

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(crowdEnv); arg != "" {
		crowdMain(arg)
		return
	}
	goleak.VerifyTestMain(m)
}
