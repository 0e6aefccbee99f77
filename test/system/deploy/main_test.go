package deploy

import (
	"io"
	"log"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Helm's loader logs each time that the chart's links to alerts.yaml, rules.yaml and the
	// dashboard are links.
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}
