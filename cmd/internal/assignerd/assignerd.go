// Package assignerd is the program assigner.
package assignerd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/cmd/internal/daemon"
	"github.com/slicer-project/slicer/cmd/internal/leasejobs"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/stores"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/front"
)

// Command returns the program, which decides which task owns which keys.
func Command() *cobra.Command {
	var f run.Flags
	var urls []string
	var ttl, registration, compact time.Duration
	var serveLeases, compress bool
	cmd := &cobra.Command{
		Use:   "assigner --store URL [flags]",
		Short: "Decide which task owns which keys, and keep that in etcd",
		Long: `The assigner takes the health and load of a job's tasks, which Distributors send
it, decides which task owns which slice of the keys, and keeps the assignments in
etcd. Run two or more on one store: for each job one is preferred, those of the
job's zone first, and another takes over within seconds when it dies.

Distributors are told of assigners by their --assigners, and find those that are
registered in the store by themselves.

With several stores each job is in the one that its config names (store: NAME),
else in the first. One that is down is nothing to the jobs of the others; its own
go on routing, and are not rebalanced until it is back.

etcd keeps each generation until it is compacted. Start it with
--auto-compaction-mode=periodic --auto-compaction-retention=1h, or give the assigners
--etcd-compact where nothing else uses that etcd.

Jobs in consistent mode need etcd 3.5.13 or later on every member. Their leases
are kept beside the assignments, below lease/ of the store's prefix; with an older
etcd such jobs are refused, and all others are served.

With --serve-leases the servers of such jobs hold their leases by way of the
assigners, at --listen, and need neither credentials of etcd nor a way to it. Name
all assigners to them: a session goes on at another one when its own dies.`,
		Example: `  assigner --store etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/slicer
  assigner --store main=etcd://etcd-1:2379/slicer --store eu=etcd://eu-etcd:2379/slicer --zone eu-1
  assigner --store 'etcd://etcd-1:2379/slicer?ca=/etc/etcd/ca.pem&cert=/etc/etcd/client.pem&key=/etc/etcd/client.key'`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		specs, err := stores.ParseAll(urls)
		if err != nil {
			return err
		}
		if err := lease.CheckTTL(ttl); err != nil {
			return run.Usagef("--lease-ttl: %w", err)
		}
		if err := etcdstore.CheckRegistrationTTL(registration); err != nil {
			return run.Usagef("--registration-ttl: %w", err)
		}
		if err := assigner.CheckCompact(compact); err != nil {
			return run.Usagef("--etcd-compact: %w", err)
		}
		for i := range specs {
			specs[i].RegistrationTTL, specs[i].Compress = registration, compress
		}
		return daemon.Serve(cmd, &f, func(ctx context.Context, p *run.Process, advertised, id string) (*daemon.Part, error) {
			return openAssigner(ctx, p, specs, serveLeases, assigner.Config{ID: id, Zone: f.Zone, Address: advertised, LeaseTTL: ttl, Compact: compact, Rights: p.Rights, Logger: p.Log, Registerer: p.Registry})
		})
	}
	f.Bind(cmd, "", run.AssignerPort)
	f.BindPolicy(cmd)
	f.BindPage(cmd)
	cmd.Flags().StringArrayVar(&urls, "store", nil, "`[NAME=]URL` of a store, "+stores.Usage+"; repeated for several stores with names, by which jobs choose: the first is the default")
	cmd.Flags().BoolVar(&compress, "compress-store", false, stores.CompressUsage+", so set it once no assigner and no backup distributor of the stores is older")
	cmd.Flags().DurationVar(&ttl, "lease-ttl", 5*time.Second, "longest `time` after which another assigner takes over the jobs in consistent mode of one that died, 1s to 10m; less if a job's lease_duration is")
	cmd.Flags().BoolVar(&serveLeases, "serve-leases", false, "hold leases in etcd for the servers of jobs in consistent mode, which then need no credentials of it: those of the first --store. Each assigner of the store should")
	cmd.Flags().DurationVar(&registration, "registration-ttl", 3*time.Second, "`time` after which the other assigners take over the jobs of one that died or is cut off from its store, 2s to 10m in whole seconds; etcd makes it longer than its election timeout. The shorter it is, the sooner a store that is slow makes jobs change hands. Above 3s, slicelets look in vain for another Distributor from 4s after the death until then")
	cmd.Flags().DurationVar(&compact, "etcd-compact", 0, "compact etcd: drop what was overwritten or deleted this `time` ago, 10s to 24h; 0 leaves it to etcd's --auto-compaction flags. It is for all of the etcd cluster, so set it only where nothing else there needs older revisions. 5m is a good value")
	return cmd
}

func openAssigner(ctx context.Context, p *run.Process, specs []stores.Spec, serveLeases bool, cfg assigner.Config) (*daemon.Part, error) {
	opened := daemon.Part{Close: func() error { return nil }}
	all, err := stores.OpenAll(ctx, specs, p)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		opened.Closes(o.Backend.Close)
		opened.Closes(o.Leases.Close)
		opened.Endings = append(opened.Endings, o.Ending)
		cfg.Stores = append(cfg.Stores, assigner.NamedStore{Name: o.Name, Backend: o.Backend, Leases: o.Leases})
	}
	a, err := assigner.New(cfg)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	opened.Closes(a.Close)
	opened.Closes(page.Of(p, "assigner", cfg.ID, a.Register).Close)
	opened.Register, opened.Options, opened.Ready = a.Register, assigner.ServerOptions(), a.Ready
	if serveLeases {
		if err := frontLeases(&opened, all[0], p); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	return &opened, nil
}

// frontLeases serves the leases of a store to slicelets, beside the assigner.
func frontLeases(opened *daemon.Part, of stores.Opened, p *run.Process) error {
	f, err := front.New(front.Config{Store: of.Leases.Open, LeaseTime: leasejobs.Time(of.Backend), Rights: p.Rights, Access: leasejobs.Access(of.Backend), Logger: p.Log})
	if err != nil {
		return err
	}
	opened.Closes(f.Close)
	register := opened.Register
	opened.Register = func(r grpc.ServiceRegistrar) {
		register(r)
		f.Register(r)
	}
	return nil
}
