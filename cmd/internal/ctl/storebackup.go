package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/stores"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	leaseserve "github.com/slicer-project/slicer/lease/serve"
)

func (o *storeOp) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE --store URL",
		Short: "Write all records of a store to a file",
		Long: `Writes all of Slicer's records in a store, and nothing else that is in the same etcd, to a file:
as they were at one revision, corrupt ones included, with a checksum over all. The file is
in its place only when it is whole and on disk, and replaces what was there; it is
readable by its owner alone. - is standard output.`,
		Example: `  slicerctl store backup /backup/slicer-1 --store etcd://etcd-1:2379/slicer
  slicerctl store backup - --store pebble:///var/lib/slicer | gzip > slicer.gz`,
		Args: run.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.on(cmd, pebblestore.ReadOnly, func(m maintenance.Medium, s *maintenance.Snapshot) error {
				if len(s.Records) == 0 {
					return notFoundf("there is no store at %s", m.Where())
				}
				h := maintenance.Header{Created: time.Now().UTC(), Store: m.Where(), Program: run.Version()}
				if args[0] == "-" {
					return maintenance.WriteBackup(cmd.OutOrStdout(), h, s)
				}
				size, err := run.WriteFile(args[0], func(w io.Writer) error { return maintenance.WriteBackup(w, h, s) })
				if err != nil {
					return err
				}
				if o.app.json {
					return printJSON(cmd.OutOrStdout(), map[string]any{"file": args[0], "bytes": size, "records": len(s.Records), "revision": s.Revision, "store": m.Where()})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s at revision %d, %s\n", args[0], plural(len(s.Records), "record"), m.Where(), s.Revision, plural(int(size), "byte"))
				return err
			})
		},
	}
}

func (o *storeOp) restoreCommand() *cobra.Command {
	var force, dry bool
	var by signature
	cmd := &cobra.Command{
		Use:   "restore FILE --store URL [--force] [--dry-run]",
		Short: "Fill a store from a backup",
		Long: `Fills a store with what a backup holds. All assigners and Backup Distributors of the store, or
slicer serve, have to be stopped: restore refuses while an assigner is registered, or when the
store holds anything, unless --force is given. It says what it replaces.

Each job comes back with its config, its orders and its history, and with its newest assignment of the backup
under a new generation, which is later than all that were ever seen; older generations are not restored, so rollback
reaches back to the restore. The store gets a new id, so that a part that knows a later past forgets it.
Jobs that the backup does not have are gone.

Registrations, and leases and sessions of consistent mode, are not restored. If any job is in that mode, the
sessions in etcd are ended, and nothing is granted until the longest lease has passed of
which the backup or the store knows: until then some keys have no owner, and none has two.

In Pebble all is replaced in one batch. In etcd that takes several transactions, but processes refuse
the store from the first to the last one: none sees a part. One that is broken off is run again, with --force.`,
		Example: `  slicerctl store restore /backup/slicer-1 --store etcd://etcd-1:2379/slicer --dry-run
  slicerctl store restore /backup/slicer-1 --store etcd://etcd-1:2379/slicer --force --reason 'incident 4711'`,
		Args: run.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			b, err := maintenance.ReadBackup(in)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			access := pebblestore.MayCreate
			if dry {
				access = pebblestore.ReadOnly
			}
			var r *maintenance.Restored
			err = o.on(cmd, access, func(m maintenance.Medium, s *maintenance.Snapshot) error {
				r, err = o.restore(cmd, m, s, b, by, force, dry)
				return err
			})
			if err == nil && !dry && r.Consistent {
				err = o.suspend(cmd.Context(), r.Longest)
			}
			if err == nil && !dry && !o.app.json {
				fmt.Fprintln(cmd.OutOrStdout(), "restored: start the assigners")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace what the store holds, whatever is registered")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	by.bind(cmd)
	return cmd
}

// kept are the records that a restore leaves alone: what closes the store to sessions of
// before, in etcd, and what numbers and bounds them, in Pebble.
var kept = []string{"lease-suspended/", "lease/epoch", "lease/longest"}

func (o *storeOp) restore(cmd *cobra.Command, m maintenance.Medium, s *maintenance.Snapshot, b *maintenance.Backup, by signature, force, dry bool) (*maintenance.Restored, error) {
	ctx := cmd.Context()
	if s.Damage != nil && !force {
		return nil, fmt.Errorf("%s: %w: --force replaces it", m.Where(), s.Damage)
	}
	r, err := maintenance.Plan(ctx, b, s, maintenance.RestoreOptions{
		StoreID: random(), Attempt: random(), Now: time.Now(), Who: by.who, Why: by.why, Keep: kept,
	})
	if err != nil {
		return nil, err
	}
	if o.app.json {
		err = printJSON(cmd.OutOrStdout(), struct {
			*maintenance.Restored
			Store string `json:"store"`
		}{r, m.Where()})
	} else {
		printRestored(cmd.OutOrStdout(), m.Where(), r)
	}
	if err != nil || dry {
		return r, err
	}
	if !force {
		switch {
		case len(r.Registered) > 0:
			return nil, fmt.Errorf("assigners are registered in %s: %s; stop them first, or replace the store under them with --force", m.Where(), strings.Join(r.Registered, ", "))
		case r.Replaces > 0:
			return nil, fmt.Errorf("%s holds %s; --force replaces them", m.Where(), plural(r.Replaces, "record"))
		}
	}
	tell(cmd.ErrOrStderr(), "store "+m.Where())
	// Before, so that nothing acquires what is to go; and after, since by then the last
	// keepalive of what was acquired before may be no older than this moment.
	if _, pebble := m.(*pebblestore.Medium); r.Consistent && !pebble {
		if err := o.suspend(ctx, r.Longest); err != nil {
			return nil, err
		}
	}
	return r, r.Apply(ctx, m, s)
}

func printRestored(w io.Writer, where string, r *maintenance.Restored) {
	fmt.Fprintf(w, "backup of %s at revision %d, made at %s by %s\n", r.Backup.Store, r.Backup.Revision, r.Backup.Created.Format(time.RFC3339), r.Backup.Program)
	fmt.Fprintf(w, "onto %s, which holds %s and gets the id %s\n", where, plural(r.Replaces, "record"), r.StoreID)
	t := newTable("JOB", ">VERSION", ">GENERATION IN BACKUP", ">STORED AS", ">REPLACES")
	for _, j := range r.Jobs {
		number := func(g int64) string {
			if g == 0 {
				return "-"
			}
			return fmt.Sprint(g)
		}
		t.row(j.Job, fmt.Sprint(j.Version), number(j.From), number(j.Generation), number(j.Replaces))
	}
	t.print(w)
	if len(r.Lost) > 0 {
		fmt.Fprintf(w, "jobs that the backup does not have, and that go: %s\n", strings.Join(r.Lost, ", "))
	}
	if r.Consistent {
		fmt.Fprintf(w, "leases: nothing is granted for %s afterwards\n", r.Longest)
	}
}

// suspend closes the leases of the store to all until those that are not on record have
// run out.
func (o *storeOp) suspend(ctx context.Context, d time.Duration) error {
	d = min(max(d, lease.MinTTL), lease.MaxTTL)
	ctx, cancel := context.WithTimeout(ctx, o.app.timeout)
	defer cancel()
	u, tls, err := stores.ParseURL(o.url)
	if err != nil {
		return err
	}
	if u.Scheme == store.SchemeEtcd {
		l, err := etcdlease.Open(ctx, etcdlease.Config{Endpoints: u.Endpoints, Prefix: u.Prefix, TLS: tls})
		if err != nil {
			return fmt.Errorf("suspend leases: %w", err)
		}
		return errors.Join(l.Suspend(ctx, d), l.Close())
	}
	db, err := pebblestore.OpenContext(ctx, u.Dir, pebblestore.Config{})
	if err != nil {
		return fmt.Errorf("suspend leases: %w", err)
	}
	l, err := leaseserve.Open(ctx, leaseserve.Config{Storage: db.Leases(), Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = errors.Join(l.Suspend(ctx, d), l.Close())
	}
	if err = errors.Join(err, db.Close()); err != nil {
		err = fmt.Errorf("the store is restored, but its leases could not be suspended: run this again before anything is started: %w", err)
	}
	return err
}
