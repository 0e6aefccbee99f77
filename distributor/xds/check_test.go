package xds

import "testing"

func TestFlavors(t *testing.T) {
	for _, c := range []struct {
		agent, version string
		want           flavor
	}{
		{"gRPC Go", "1.85.0", flavor{policy: ring}},
		{"gRPC Node Pure JS", "1.14.7", flavor{ring, byRange}},
		{"gRPC Java", "1.60.0", flavor{policy: ring}},
		{"gRPC C-core linux", "C-core 1.51.1", flavor{turns, byShortExpression}},
		{"gRPC C-core linux", "C-core 29.0.0", flavor{turns, byShortExpression}},
		{"gRPC C-core linux", "C-core 1.62.0 extra", flavor{ring, byShortExpression}},
		{"gRPC C-core osx", "1.71.0", flavor{ring, byShortExpression}},
		{"gRPC C-core osx", "", flavor{turns, byShortExpression}},
		{"", "", flavor{policy: ring}},
	} {
		if got := flavorOf(c.agent, c.version); got != c.want {
			t.Errorf("%q of %q gets %+v", c.version, c.agent, got)
		}
	}
}
