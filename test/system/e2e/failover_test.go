package e2e

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// pause lets clients call for a while with things as they are.
func pause() { time.Sleep(2 * time.Second) }

func all(ps []*process.Process, f func(*process.Process)) {
	for _, p := range ps {
		f(p)
	}
}

// TestFailover kills one part after another, then several at once, while
// clients keep calling. The table it logs is of what the clients saw.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	names := []string{"s1", "s2", "s3", "s4"}
	for _, n := range names {
		c.startServer(n)
	}
	cache := filepath.Join(c.dir, "c2.cache")
	c.clients = []*clientProcess{c.startClient("c1", ""), c.startClient("c2", cache)}
	c.converged(names...)
	c.during("all well", pause)

	c.during("preferred assigner killed", func() {
		t.Logf("another assigner was preferred %.1fs after the kill", c.takeover().Seconds())
		pause()
	})

	c.during("distributor killed", func() { c.distributors[0].Kill(); pause(); c.distributors[0].Restart() })
	c.converged(names...)

	for _, p := range c.etcds {
		c.during(p.Name+" killed", func() { p.Kill(); pause(); p.Restart() })
	}
	c.converged(names...)

	d := c.during("server killed", func() { c.servers["s2"].Kill(); c.converged("s1", "s3", "s4") })
	if d.Failed != 0 {
		t.Errorf("server killed: %d calls failed although they could be retried", d.Failed)
	}
	c.during("server back", func() { c.servers["s2"].Restart(); c.converged(names...) })

	d = c.during("server drained by SIGTERM", func() {
		c.servers["s3"].Signal(syscall.SIGTERM)
		<-c.servers["s3"].Done()
		c.converged("s1", "s2", "s4")
	})
	if d.Failed+d.Retried != 0 {
		t.Errorf("drain: %d calls failed and %d were retried, none should", d.Failed, d.Retried)
	}
	c.servers["s3"].Restart()
	c.converged(names...)

	c.during("all assigners killed", func() { all(c.assigners, (*process.Process).Kill); pause() })
	c.during("all distributors killed too", func() { all(c.distributors, (*process.Process).Kill); pause() })
	c.during("client started on the backup distributor", func() { c.ready(c.startClient("c3", "")) })
	c.during("backup distributor killed too", func() { all(c.backups, (*process.Process).Kill); pause() })
	c.during("etcd killed too", func() { all(c.etcds, (*process.Process).Kill); pause() })
	c.during("client started on its cache file", func() { c.ready(c.startClient("c4", cache)) })
	c.during("everything back", func() {
		for _, ps := range [][]*process.Process{c.etcds, c.assigners, c.distributors, c.backups} {
			all(ps, (*process.Process).Restart)
		}
		c.converged(names...)
	})
	c.during("server killed after that", func() { c.servers["s1"].Kill(); c.converged("s2", "s3", "s4") })
	if n := c.total(); n.Failed != 0 {
		t.Errorf("%d of %d calls failed", n.Failed, n.Calls)
	}
}

// ready waits until a new client has an assignment and has called with it.
func (c *cluster) ready(p *clientProcess) {
	c.t.Helper()
	took := process.Eventually(c.t, within, p.Name+" is ready", func() error {
		if n := p.counts(); !n.Ready || n.Calls == 0 {
			return errors.New("not ready")
		}
		return nil
	})
	c.t.Logf("%s was ready after %.1fs", p.Name, took.Seconds())
	c.clients = append(c.clients, p)
}
