package daemon_test

import (
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/cmd/internal/proxyd"
)

// TestHTTPIsForThisMachine: without a flag no program's metrics, profiles and status page, which
// are in plain text and for each that reaches them, are there for other machines; --help says how
// they come to be.
func TestHTTPIsForThisMachine(t *testing.T) {
	all := maps.Clone(programs)
	all["slicerproxy"] = proxyd.Command
	for name, command := range all {
		f := command().Flags().Lookup("http")
		host, _, err := net.SplitHostPort(f.DefValue)
		if err != nil || host != "localhost" {
			t.Errorf("%s --http is %q by default, which is not this machine alone: %v", name, f.DefValue, err)
		}
		if want := "other machines reach it without a host"; !strings.Contains(f.Usage, want) {
			t.Errorf("%s --http: %q does not say %q", name, f.Usage, want)
		}
	}
}
