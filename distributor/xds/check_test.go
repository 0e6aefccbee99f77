package xds

import "testing"

func TestPolicyFor(t *testing.T) {
	for _, c := range []struct {
		agent, version string
		want           policy
	}{
		{"gRPC Go", "1.85.0", ring},
		{"gRPC Node Pure JS", "1.14.7", ring},
		{"gRPC Java", "1.60.0", ring},
		{"gRPC C-core linux", "C-core 1.51.1", turns},
		{"gRPC C-core linux", "C-core 29.0.0", turns},
		{"gRPC C-core linux", "C-core 1.62.0 extra", ring},
		{"gRPC C-core osx", "1.71.0", ring},
		{"gRPC C-core osx", "", turns},
		{"", "", ring},
	} {
		if got := policyFor(c.agent, c.version); got != c.want {
			t.Errorf("%q of %q gets policy %d", c.version, c.agent, got)
		}
	}
}
