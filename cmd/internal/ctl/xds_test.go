package ctl

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestInspectShowsXDS(t *testing.T) {
	info := sampleInfo()
	info.Xds = []*slicerv1.XdsClients{
		{DistributorId: "d0", Clients: 1, Acks: 7, Refused: "it is in consistent mode"},
		{DistributorId: "d1", Clients: 3, Refusing: 1, Acks: 20, Nacks: 2, LastNack: "no\x1b[2Jroute", LastNackAgeMs: 61000},
	}
	v, err := newInspectView("web", info.Job, sample(t, nil, 1763715600000, 0, 1, 2, 0), info)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v.print(&out, time.UnixMilli(1763715660000))
	for _, want := range []string{
		"xDS at d0: 1 client, 7 acks, 0 nacks; not served: it is in consistent mode\n",
		`xDS at d1: 3 clients, 20 acks, 2 nacks, 1 refusing now; last nack 1m1s ago: "no\x1b[2Jroute"` + "\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("inspect does not show %q:\n%s", want, out.String())
		}
	}
	b, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(b), `{"distributor":"d1","clients":3,"refusing":1,"acks":20,"nacks":2,"last_nack":`) {
		t.Errorf("inspect's JSON is %s, %v", b, err)
	}
}
