package distributor

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
)

func TestTargets(t *testing.T) {
	hosts := map[string][]netip.Addr{
		"both.local": {netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2")},
		"six.local":  {netip.MustParseAddr("fd00::6")},
	}
	var missed []string
	ts := targets{missed: func(name string, _ error) { missed = append(missed, name) }, lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		if a, ok := hosts[host]; ok {
			return a, nil
		}
		return nil, errors.New("no such host")
	}}
	names := []string{"both.local:1", "six.local:2", "10.0.0.1:1", "[::1]:3", "gone.local:4", "nonsense"}
	want := map[string]string{
		"10.0.0.1:1": "both.local:1", "10.0.0.2:1": "both.local:1", "[fd00::6]:2": "six.local:2", "[::1]:3": "[::1]:3",
	}
	if got := ts.resolve(t.Context(), names); !maps.Equal(got, want) {
		t.Errorf("resolved %v", got)
	}
	clear(hosts)
	if got := ts.resolve(t.Context(), names); !maps.Equal(got, want) {
		t.Errorf("when the name service is down: %v", got)
	}
	if want := []string{"gone.local:4", "both.local:1", "six.local:2"}; !slices.Equal(missed, want) {
		t.Errorf("told of %v, want %v: each once in a row", missed, want)
	}
	hosts["six.local"] = []netip.Addr{netip.MustParseAddr("fd00::7")}
	want = map[string]string{"[fd00::7]:2": "six.local:2"}
	if got := ts.resolve(t.Context(), names[1:2]); !maps.Equal(got, want) {
		t.Errorf("resolved %v", got)
	}
}
