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
	var url string
	cmd := &cobra.Command{
		Use:   "backupdist --store URL [flags]",
		Short: "Serve assignments straight from the store when all else is dead",
		Long: `The backup distributor answers clerks and slicelets from the store alone, sharing
no code with assigner and distributor: when all of those are dead, programs that
start still get the last assignment. It takes no reports and decides nothing.
slicerctl inspect, lookup and watch work against it too.`,
		Example: `  backupdist --store etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/slicer`,
		Args:    run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if url == "" {
			return run.Usagef("--store is missing: want %s", stores.Usage)
		}
		spec, err := stores.Parse(url)
		if err != nil {
			return err
		}
		return daemon.Serve(cmd, &f, func(ctx context.Context, p *run.Process, _, id string) (*daemon.Part, error) {
			b, err := stores.Open(ctx, spec, p.Log, p.Status)
			if err != nil {
				return nil, err
			}
			s, err := backupdist.New(backupdist.Config{Store: b, Logger: p.Log.With("id", id), Registerer: p.Registry})
			if err != nil {
				b.Close()
				return nil, err
			}
			return &daemon.Part{
				Register: s.Register, Options: backupdist.ServerOptions(), Ready: s.Ready,
				Close:   func() error { return errors.Join(s.Close(), b.Close()) },
				Endings: []run.Ending{{Done: b.Failed(), Err: b.Err}},
			}, nil
		})
	}
	f.Bind(cmd, "", run.BackupPort)
	cmd.Flags().StringVar(&url, "store", "", "`URL` of the store, "+stores.Usage)
	return cmd
}
