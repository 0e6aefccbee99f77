// Package backupd is the program backupdist.
package backupd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/cmd/internal/daemon"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/stores"
)

// Command returns the program, which serves assignments from the store alone.
func Command() *cobra.Command {
	var f run.Flags
	var urls []string
	cmd := &cobra.Command{
		Use:   "backupdist --store URL [flags]",
		Short: "Serve assignments straight from the store when all else is dead",
		Long: `The backup distributor answers clerks and slicelets from the store alone, sharing
no code with assigner and distributor: when all of those are dead, programs that
start still get the last assignment. It takes no reports and decides nothing.
slicerctl inspect, lookup and watch work against it too.

With several stores it serves the jobs of all of them. One that is down hides no job
of the others, and its own are served as they were read last.`,
		Example: `  backupdist --store etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/slicer
  backupdist --store main=etcd://etcd-1:2379/slicer --store eu=etcd://eu-etcd:2379/slicer`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		specs, err := stores.ParseAll(urls)
		if err != nil {
			return err
		}
		return daemon.Serve(cmd, &f, func(ctx context.Context, p *run.Process, _, id string) (*daemon.Part, error) {
			all, err := stores.OpenAll(ctx, specs, p)
			if err != nil {
				return nil, err
			}
			part := &daemon.Part{Close: func() error { return nil }}
			cfg := backupdist.Config{Logger: p.Log.With("id", id), Registerer: p.Registry, Rights: p.Rights}
			for _, o := range all {
				part.Closes(o.Backend.Close)
				part.Endings = append(part.Endings, o.Ending)
				cfg.Stores = append(cfg.Stores, backupdist.NamedStore{Name: o.Name, Store: o.Backend})
			}
			s, err := backupdist.New(cfg)
			if err != nil {
				return nil, errors.Join(err, part.Close())
			}
			part.Closes(s.Close)
			part.Register, part.Options, part.Ready = s.Register, backupdist.ServerOptions(), s.Ready
			part.Admit = s.Admit
			return part, nil
		})
	}
	f.Bind(cmd, "", run.BackupPort)
	f.BindPolicy(cmd)
	cmd.Flags().StringArrayVar(&urls, "store", nil, "`[NAME=]URL` of a store, "+stores.Usage+"; repeated for several stores, with the names that assigners give them")
	return cmd
}
