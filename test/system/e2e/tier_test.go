package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// TestSecondTier has a server and a client below a Distributor of the second tier. The
// assigner and the Distributor of the first tier above it are killed and come back.
func TestSecondTier(t *testing.T) {
	t.Parallel()
	process.BuildSlicer(t)
	addrs := process.FreePorts(t, 5)
	c := &cluster{
		t: t, dir: t.TempDir(), servers: map[string]*process.Process{}, serverAddrs: map[string]string{},
		// They know of no other server: neither the first tier nor a Backup Distributor.
		distAddrs: addrs[1:2], backupAddr: addrs[1],
	}
	process.Etcd{Dir: c.dir, Clients: addrs[2:3], Peers: addrs[3:4], Flags: []string{"--log-level=warn"}}.Start(t)
	start := func(program, id, listen string, flags ...string) *process.Process {
		return process.Start(t, id, nil, append([]string{process.Program(program), "--id", id, "--listen", listen, "--http=", "--log-level=debug"}, flags...)...)
	}
	above := []*process.Process{
		start("assigner", "a0", addrs[4], "--store=etcd://"+addrs[2]+"/slicer"),
		start("distributor", "first", addrs[0], "--assigners", addrs[4], "--serve-distributors"),
	}
	c.distributors = append(c.distributors, start("distributor", "second", addrs[1], "--upstreams", addrs[0]))
	file := filepath.Join(c.dir, "job.yaml")
	if err := os.WriteFile(file, []byte(jobFile), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, within, "apply the job", func() error {
		_, err := c.ctl(0, "job", "apply", "-f", file)
		return err
	})
	c.startServer("s1")
	c.clients = []*clientProcess{c.startClient("c1", "")}
	below := func() {
		process.Eventually(t, within, "inspect tells of the second tier and those below it", func() error {
			out, err := c.ctl(0, "inspect", job, "--json")
			if err != nil {
				return err
			}
			var v struct {
				Control struct {
					Converged                       bool
					Distributors, Clerks, Slicelets int
					Progress                        struct {
						Roles []struct {
							Holders []struct{ Subscribers int }
						}
					}
				}
				Through struct{ Tier int }
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				return err
			}
			// Both Distributors are attached to the assigner, one through the other.
			if k := v.Control; v.Through.Tier != 2 || !k.Converged || k.Distributors != 2 || k.Clerks != 1 || k.Slicelets != len(c.servers) {
				return fmt.Errorf("%+v", v)
			}
			// Each is counted once, and the second tier is no subscriber.
			holders := 0
			for _, r := range v.Control.Progress.Roles {
				for _, h := range r.Holders {
					holders += h.Subscribers
				}
			}
			if holders != 1+len(c.servers) {
				return fmt.Errorf("%d hold an assignment: %+v", holders, v)
			}
			return nil
		})
	}
	c.converged("s1")
	below()
	c.during("assigner and first tier killed", func() {
		all(above, (*process.Process).Kill)
		time.Sleep(time.Second)
		// What is held is served to those that come now.
		c.clients = append(c.clients, c.startClient("c2", ""))
		process.Eventually(t, within, "a new client calls", func() error {
			if n := c.clients[1].counts(); n.Calls == 0 || n.Generation == 0 {
				return fmt.Errorf("%+v", n)
			}
			return nil
		})
		c.clients[1].Kill()
		c.clients = c.clients[:1]
	})
	all(above, (*process.Process).Restart)
	c.startServer("s2")
	c.converged("s1", "s2")
	below()
}
