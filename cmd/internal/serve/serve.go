// Package serve is "slicer serve": the whole control plane in one process.
package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/endpoint"
	"github.com/slicer-project/slicer/cmd/internal/leasejobs"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/plane"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/stores"
	"github.com/slicer-project/slicer/lease"
	leaseserve "github.com/slicer-project/slicer/lease/serve"
)

// Command returns the command, which is the whole control plane in one process.
func Command() *cobra.Command {
	var f run.Flags
	var url, backup, called string
	var ttl time.Duration
	var compress bool
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run a whole control plane in one process, on an embedded store",
		Long: `Runs an assigner, a distributor and a backup distributor in one process, with an
embedded store in a directory. That is all that one machine needs; it is as
available as that machine. For more, run those programs as processes of their own
on etcd.

Clerks, slicelets and slicerctl connect to --listen; the leases of jobs in
consistent mode are served there too. After a restart nothing is granted in such a
job until its lease_duration has passed, as leases from before may run for so
long. Every assignment is on disk before it is sent to any part; a disk that is full
ends the process.`,
		Example: `  slicer serve
  slicer serve --store pebble:///var/lib/slicer --listen :4720 --http :4721 --tls-cert slicer.crt --tls-key slicer.key --tls-ca ca.crt`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := storeDir(url)
		if err != nil {
			return err
		}
		if err := run.CheckAddress("--backup-listen", backup); err != nil {
			return err
		}
		if err := f.CheckPlain("--backup-listen", backup); err != nil {
			return err
		}
		if err := endpoint.Check(called); err != nil {
			return err
		}
		if err := lease.CheckTTL(ttl); err != nil {
			return run.Usagef("--lease-ttl: %w", err)
		}
		return serveAll(cmd, &f, dir, backup, called, ttl, compress)
	}
	f.Bind(cmd, "localhost", run.DistributorPort)
	f.BindPolicy(cmd)
	f.BindPage(cmd)
	endpoint.Bind(cmd, &called)
	cmd.Flags().StringVar(&url, "store", "", "`pebble:///DIR` to keep everything in, made if it is missing (default: slicer in the user's state directory)")
	cmd.Flags().BoolVar(&compress, "compress-store", false, stores.CompressUsage)
	cmd.Flags().DurationVar(&ttl, "lease-ttl", 5*time.Second, "longest `time` of the lease that this process holds for jobs in consistent mode, 1s to 10m; less if a job's lease_duration is")
	cmd.Flags().StringVar(&backup, "backup-listen", net.JoinHostPort("localhost", strconv.Itoa(run.BackupPort)), "`host:port` of the backup distributor; port 0 takes a free one")
	return cmd
}

// storeDir is the directory that --store names, or the default.
func storeDir(flag string) (string, error) {
	if flag == "" {
		return defaultDir()
	}
	u, err := store.ParseURL(flag)
	if err != nil {
		return "", run.Usagef("--store: %w", err)
	}
	if u.Scheme != store.SchemePebble {
		return "", run.Usagef("--store: %s is not allowed: one process has its store to itself, want pebble:///DIR; on etcd run assigner, distributor and backupdist", u)
	}
	return u.Dir, nil
}

// defaultDir follows the XDG base directory specification.
func defaultDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "slicer"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", run.Usagef("--store is missing, and its default cannot be found: %w", err)
	}
	return filepath.Join(home, ".local", "state", "slicer"), nil
}

func serveAll(cmd *cobra.Command, f *run.Flags, dir, backup, called string, ttl time.Duration, compress bool) error {
	p, err := run.Open("slicer serve", f, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer p.Close()
	defer p.Listener.Close()
	backupLis, err := run.Listen("--backup-listen", backup)
	if err != nil {
		return err
	}
	defer backupLis.Close()
	p.Status.NotReady("opening store " + dir)
	db, err := pebblestore.OpenContext(cmd.Context(), dir, pebblestore.Config{Compress: compress, Logger: p.Log})
	var leases *leaseserve.Store
	if err == nil {
		if leases, err = leaseserve.Open(cmd.Context(), leaseserve.Config{Storage: db.Leases(), Terms: leasejobs.Terms(db), Rights: p.Rights, Logger: p.Log}); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	switch {
	case err != nil && cmd.Context().Err() != nil:
		p.Log.Info("stopped before it was ready")
		return nil
	case err != nil:
		return fmt.Errorf("--store: %w", err)
	}
	all, err := plane.Start(plane.Config{
		ID: p.ID, Zone: f.Zone, Store: db, Leases: leases, Distributor: p.Listener, Backup: backupLis, Credentials: p.Credentials, Logger: p.Log, Registerer: p.Registry,
		AutoshardingEndpoint: called, LeaseTTL: ttl, Rights: p.Rights, Ready: p.Status.Ready,
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	shown := page.Of(p.Process, "slicer serve", p.ID, all.RegisterAdmin)
	p.Status.SetReady(all.Ready)
	p.Log.Info("serving", "listen", p.Listener.Addr().String(), "backup", backupLis.Addr().String(), "advertise", p.Advertised, "id", p.ID, "http", p.Status.Where(), "store", dir)
	return p.Wait(cmd.Context(), func() error { return errors.Join(shown.Close(), all.Close(), db.Close()) },
		append(all.Endings(), run.Ending{Done: db.Failed(), Err: db.Err})...)
}
