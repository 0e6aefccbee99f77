package slicelet

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	"github.com/slicer-project/slicer/assignment/wire"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestTakenName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, net: subscribertest.NewNetwork()}
		c.server = startServer(c.net)
		c.server.Refuse(status.Error(codes.AlreadyExists, `task "me" lives`))
		var err error
		if c.s, err = New(config(c.net)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.s.Ready(ctx); !errors.Is(err, ErrTaskNameTaken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Ready: %v", err)
		}
		// The other goes.
		c.server.Refuse(nil)
		for c.server.Streams() == 0 {
			<-c.server.Changed()
		}
		c.me = c.server.Heard()[0].GetHello().GetTask()
		c.assign(1, assignment.TaskRunning, "mo")
		if err := c.s.Ready(t.Context()); err != nil || !c.s.IsAffinitized(keyIn(0, 2)) {
			t.Errorf("Ready: %v", err)
		}
		c.stop()
	})
}

// Another Distributor has the other task of this name, so that ours lets us in
// until an assigner objects.
func TestTakenNameFoundLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		defer c.stop()
		c.me = &slicerv1.Task{Name: "me", Incarnation: 1, Address: "10.9.9.7:80", Weight: 1}
		ready := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			ready <- c.s.Ready(ctx)
		}()
		c.assign(1, assignment.TaskRunning, "mo")
		time.Sleep(settleTime / 2)
		c.server.Refuse(status.Error(codes.AlreadyExists, `task "me" lives`))
		if err := <-ready; !errors.Is(err, ErrTaskNameTaken) {
			t.Errorf("Ready: %v", err)
		}
		// A task without objections is ready, though not yet named.
		c.server.Refuse(nil)
		if err := c.s.Ready(t.Context()); err != nil {
			t.Errorf("Ready: %v", err)
		}
		c.s.Close()
		if err := c.s.Ready(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Ready after Close: %v", err)
		}
	})
}

// A task that is restarted while Slicer is dead goes on with its predecessor's
// slices; once Slicer is back, only with what it is assigned.
func TestRestartWithSlicerDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := filepath.Join(t.TempDir(), "cache")
		c := newCluster(t, func(c *Config) { c.CacheFile = cache })
		c.assign(10, assignment.TaskRunning, "mmoo")
		c.stop()
		restart := func(change func(*Config)) {
			cfg := config(c.net)
			cfg.CacheFile = cache
			if change != nil {
				change(&cfg)
			}
			var err error
			if c.s, err = New(cfg); err != nil {
				t.Fatal(err)
			}
			if err := c.s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		k := keyIn(0, 4)
		// Elsewhere it takes over from none.
		restart(func(c *Config) { c.Address = "10.9.9.8:80" })
		if c.s.IsAffinitized(k) {
			t.Error("a task at another address goes on with the slices")
		}
		c.s.Close()

		l := &recorded{}
		restart(nil)
		c.s.Listen(l)
		synctest.Wait()
		h := c.s.Handle(k)
		if !h.Owned() || !h.AssignedContinuously() || h.FencingToken() != 0 || c.s.IsAffinitized(keyIn(3, 4)) {
			t.Errorf("not provisionally the heir: %+v", h)
		}
		// The Backup Distributor has something newer: still static sharding.
		dead := c.net.Start(backup)
		dead.Say(&slicerv1.Status{Mode: slicerv1.Mode_MODE_AFFINITY})
		old, _ := wire.TaskFromProto(c.me)
		next := subscribertest.Equal(t, c.last, assignment.Header{Job: "job", StoreID: 1, Generation: 11},
			[]assignment.Task{old, subscribertest.Task("other", 1)}, 0, 1, 1, 1)
		dead.Put(next)
		for c.s.Assignment().Generation() != 11 {
			time.Sleep(time.Second)
		}
		if !h.AssignedContinuously() || c.s.IsAffinitized(keyIn(1, 4)) {
			t.Error("provisional ownership does not follow the backup")
		}
		// Slicer returns.
		c.last = next
		c.server = startServer(c.net)
		c.server.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
		for c.server.Streams() == 0 {
			<-c.server.Changed()
		}
		synctest.Wait()
		if !h.AssignedContinuously() {
			t.Error("provisional ownership ends before there is anything new")
		}
		c.me = c.server.Heard()[0].GetHello().GetTask()
		c.assign(12, assignment.TaskRunning, "mooo")
		if h2 := c.s.Handle(k); h.AssignedContinuously() || !h2.Owned() || h2.FencingToken() != 12 {
			t.Errorf("assigned at last: %+v, the provisional handle is valid: %t", h2, h.AssignedContinuously())
		}
		if got, want := l.take(), []string{"+01 -", "+ -1", "+0 -0"}; !slices.Equal(got, want) {
			t.Errorf("listener told %q, want %q", got, want)
		}
		c.stop()
		dead.Stop()
	})
}

// With Slicer alive a restarted task owns nothing until it is assigned something.
func TestRestartWithSlicerAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := filepath.Join(t.TempDir(), "cache")
		c := newCluster(t, func(c *Config) { c.CacheFile = cache })
		c.assign(10, assignment.TaskRunning, "mmoo")
		c.s.Close()
		cfg := config(c.net)
		cfg.CacheFile = cache
		var err error
		if c.s, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if c.s.IsAffinitized(keyIn(0, 4)) {
				t.Fatal("owned by a new incarnation")
			}
			time.Sleep(50 * time.Millisecond)
		}
		c.stop()
	})
}
