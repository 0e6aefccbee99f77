package ctl_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/slicelet"
)

// TestFormerIncarnation restarts a server of a frozen job: what its predecessor
// owned is not its own.
func TestFormerIncarnation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	servers := w.tasks("web", "web-0", "web-1")
	slices := len(servers["web-0"].Slices())
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint(i); servers["web-0"].Assignment().Lookup(assignment.KeyOf(k)).At(0).Name == "web-0" {
			key = k
		}
	}
	w.must("freeze", "web")
	if err := servers["web-0"].Close(); err != nil {
		t.Fatal(err)
	}
	next, err := slicelet.New(slicelet.Config{Job: "web", Task: "web-0", Address: "127.0.0.1:9", Distributors: []string{w.distributor}})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	w.eventually("web-0 runs again", func() bool { return strings.Contains(w.must("inspect", "web"), "127.0.0.1:9") })
	w.says(`\nweb-0 +running +0 +0% .*127\.0\.0\.1:9 .*\n(.*\n)+`+fmt.Sprint(slices)+` slices \(\d.*% of keys\) are still with web-0's former incarnation at 127\.0\.0\.1:1, which is gone\n`, "inspect", "web")
	var v struct {
		Tasks []struct {
			Name   string
			Slices int
			Former *struct {
				Address string
				Slices  int
			}
		}
	}
	if err := json.Unmarshal([]byte(w.must("inspect", "web", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Tasks) != 2 || v.Tasks[0].Slices != 0 || v.Tasks[0].Former == nil || v.Tasks[0].Former.Address != "127.0.0.1:1" || v.Tasks[0].Former.Slices != slices || v.Tasks[1].Former != nil {
		t.Errorf("%+v", v)
	}
	w.says(` web-0 \(127\.0\.0\.1:1, gone\)\n`, "lookup", "web", key)
	w.says(`"gone": true`, "lookup", "web", key, "--json")
	w.says(`\nweb-0, which is gone, owns it since generation.*\n(  .*\n)*no task serves it: slicerctl status web and inspect web tell why\n`, "explain", "web", key)
	w.must("unfreeze", "web")
	w.eventually("the new web-0 has slices", func() bool { return w.share("web-0") > 0 })
	if got := w.must("inspect", "web"); strings.Contains(got, "former") {
		t.Errorf("after the freeze:\n%s", got)
	}
	w.says(`web-\d \(127\.0\.0\.1:[29]\)\n`, "lookup", "web", key)
}
