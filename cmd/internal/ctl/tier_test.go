package ctl

import "testing"

func TestThroughIsSaidWhereThereIsMoreThanOneTier(t *testing.T) {
	for want, v := range map[string]*throughView{
		"": {Distributor: "d1", Tier: 1},
		"through distributor d1, upstream of d2 d3":                                      {Distributor: "d1", Tier: 1, Downstreams: []string{"d2", "d3"}},
		"through distributor d2 of the second tier, with the upstreams d1 d4":            {Distributor: "d2", Tier: 2, Upstreams: []string{"d1", "d4"}},
		"through distributor d2 of the second tier, which reaches none of its upstreams": {Distributor: "d2", Tier: 2},
	} {
		if got := v.describe(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
	if got := (*throughView)(nil).describe(); got != "" {
		t.Errorf("a Backup Distributor: %q", got)
	}
}
