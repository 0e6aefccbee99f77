package demo

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/leasejobs"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/lease/serve"
)

// controlPlane is that of "slicer serve", with everything on loopback TCP and
// its store in a directory that goes with it.
type controlPlane struct {
	dir   string
	db    *pebblestore.Store
	all   *plane.Plane
	addrs addresses
	page  *page.Page
	http  *run.Status
}

func startControlPlane(dir, listen, http string) (*controlPlane, error) {
	var listeners [3]net.Listener
	for i, addr := range []string{listen, "127.0.0.1:0", "127.0.0.1:0"} {
		lis, err := run.Listen("--listen", addr)
		if err != nil {
			return nil, errors.Join(err, closeAll(listeners[:i]))
		}
		listeners[i] = lis
	}
	db, err := pebblestore.Open(dir, pebblestore.Config{})
	if err != nil {
		return nil, errors.Join(err, closeAll(listeners[:]))
	}
	leases, err := serve.Open(context.Background(), serve.Config{Storage: db.Leases(), Terms: leasejobs.Terms(db), Fresh: true})
	if err != nil {
		return nil, errors.Join(err, closeAll(listeners[:]), db.Close())
	}
	c := &controlPlane{dir: dir, db: db, addrs: addresses{distributor: listeners[0].Addr().String(), backup: listeners[1].Addr().String()}}
	c.all, err = plane.Start(plane.Config{
		ID: "demo", Store: db, Leases: leases, Distributor: listeners[0], Backup: listeners[1], Assigner: listeners[2],
		Credentials: insecure.NewCredentials(),
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if c.http, err = run.NewStatus(http, prometheus.NewRegistry(), nil); err != nil {
		return nil, errors.Join(err, c.all.Close(), db.Close())
	}
	c.http.SetReady(c.all.Ready)
	c.page = page.New(page.Config{Kind: "slicer demo", ID: "demo", Admin: page.AdminOf(c.all.RegisterAdmin)})
	c.http.Show(c.page)
	if where := c.http.Where(); where != "" {
		c.addrs.page = "http://" + where + "/"
	}
	return c, nil
}

func closeAll(listeners []net.Listener) (err error) {
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// jobConfig is quicker than the defaults, so that half a minute shows what
// otherwise takes minutes.
func jobConfig(cfg *Config, custom bool) assignment.JobConfig {
	c := assignment.JobConfig{
		Name: jobName,
		// The hottest key may have to be on as many servers as there are.
		MaxReplicas: max(10, cfg.Tasks),
		// All of it is quicker than by default, as a run is short.
		HeartbeatTimeout: 2 * time.Second,
		WarmUp:           4 * time.Second,
		Balance:          assignment.BalanceConfig{Interval: time.Second, Smoothing: .5},
	}
	if cfg.Overload {
		c.Overload.Admission = assignment.AdmissionOn
	}
	if cfg.Consistent {
		c.Mode, c.MaxReplicas, c.LeaseDuration = assignment.Consistent, 1, leaseTTL
	}
	if custom {
		c.LoadMetric = assignment.LoadCustom
	}
	return c.WithDefaults()
}

// Close ends it and removes its directory.
func (c *controlPlane) Close() error {
	return errors.Join(c.page.Close(), c.http.Close(), c.all.Close(), c.db.Close(), os.RemoveAll(c.dir))
}
