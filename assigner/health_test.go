package assigner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/assignment/waittest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// gauges are the values of all gauges and counters of a name, by their labels' values.
func gauges(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range all {
		if f.GetName() != prefix+name {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "assigner" {
					labels = append(labels, l.GetValue())
				}
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// TestStoreHealth runs an assigner on an etcd that fills, and then dies: /readyz, metrics
// and answers to operators tell of it and why, and that it is over.
func TestStoreHealth(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := etcdtest.NewCluster(t, 1, func(cfg *embed.Config) { cfg.QuotaBackendBytes = 4 << 20 })
	st, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	reg := prometheus.NewRegistry()
	n := start(t, Config{Stores: []NamedStore{{Backend: st}}, Registerer: reg})
	n.put(&slicerv1.JobConfig{Name: "job"})
	d := n.attach("d1")
	d.preferred("job", "a1")
	d.want(&slicerv1.Want{Job: "job"})
	d.reports("job", true, task("t1", 1))
	d.holds("job", "an owner", ownedBy("t1"))

	// state waits until /readyz and the metrics tell the same.
	state := func(why string, read, write float64, preferred float64) {
		t.Helper()
		var err error
		var up, jobs map[string]float64
		for end := time.Now().Add(waittest.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			err, up, jobs = n.Ready(), gauges(t, reg, "store_up"), gauges(t, reg, "preferred_jobs")
			if (why == "" && err == nil || why != "" && err != nil && strings.Contains(err.Error(), why)) &&
				up["read default"] == read && up["write default"] == write && jobs[""] == preferred {
				return
			}
		}
		t.Fatalf("want %q, read %v, write %v, %v jobs; have %v, %v, %v", why, read, write, preferred, err, up, jobs)
	}
	// put is answered before its caller gives up, unless the machine is starved the whole time.
	put := func() error {
		t.Helper()
		_, err := waittest.Answer(context.DeadlineExceeded, func() (struct{}, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := n.admin.PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "another"}})
			if ctx.Err() != nil {
				err = fmt.Errorf("the answer came after the caller had given up: %w", ctx.Err())
			}
			return struct{}{}, err
		})
		if _, refusal := n.admin.CheckJob(t.Context(), &slicerv1.CheckJobRequest{Config: &slicerv1.JobConfig{Name: "another"}}); status.Code(refusal) != status.Code(err) {
			t.Errorf("CheckJob says %v, PutJob %v", refusal, err)
		}
		return err
	}
	says := func(err error, why string) {
		t.Helper()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
			t.Errorf("an order: %v, want UNAVAILABLE that says %q", err, why)
		}
	}
	state("", 1, 1, 1)
	if r := gauges(t, reg, "registered")["default"]; r != 1 {
		t.Errorf("registered %v", r)
	}

	fill := etcdtest.Client(t, c)
	for err = nil; err == nil; {
		_, err = fill.Put(ctx, "/another", strings.Repeat("x", 1<<20))
	}
	state("cannot be written", 1, 0, 0)
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "space exceeded") || !strings.Contains(err.Error(), "what only reads is answered") {
		t.Errorf("ready: %v", err)
	}
	says(put(), "space exceeded")
	if _, err := n.admin.GetJob(ctx, &slicerv1.GetJobRequest{Name: "job"}); err != nil {
		t.Errorf("reading: %v", err)
	}
	good := gauges(t, reg, "store_last_success_timestamp_seconds")
	if r, w, now := good["read default"], good["write default"], float64(time.Now().Unix()); r < w || w == 0 || r > now+1 {
		t.Errorf("last read at %f, write at %f, now %f", r, w, now)
	}

	etcdtest.Free(t, c)
	state("", 1, 1, 1)
	if err := put(); err != nil {
		t.Errorf("an order after space was made: %v", err)
	}

	c.Stop(0)
	state("cannot be read", 0, 0, 0)
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("ready: %v", err)
	}
	says(put(), "connection refused")
	c.Restart(t, 0)
	state("", 1, 1, 2)
}
