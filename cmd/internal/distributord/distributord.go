// Package distributord is the program distributor.
package distributord

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/cmd/internal/daemon"
	"github.com/slicer-project/slicer/cmd/internal/endpoint"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/distributor"
)

// Command returns the program, which brings assignments to clerks and slicelets.
func Command() *cobra.Command {
	var f run.Flags
	var assigners []string
	var called string
	cmd := &cobra.Command{
		Use:   "distributor --assigners HOST:PORT,... [flags]",
		Short: "Bring assignments to clerks and slicelets, and their health and load to assigners",
		Long: `The distributor is what clerks, slicelets and slicerctl connect to. It passes on
health and load to each job's preferred assigner, and assignments to everybody who
subscribes. It keeps no state on disk: run as many as there are subscribers for,
about one for ten thousand, and two at least.

It also serves gRPC's own auto-sharding protocol, to clients in any language whose
load balancing policy is autosharding_experimental: the target is a job's name.

While all assigners are dead it goes on serving what it holds.`,
		Example: `  distributor --assigners assigner-1:4710,assigner-2:4710
  distributor --assigners slicer-assigners.default.svc:4710 --zone eu-1`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(assigners) == 0 {
			return run.Usagef("--assigners is missing: want host:port of one assigner or more, separated by commas")
		}
		for _, a := range assigners {
			if err := run.CheckDialable("--assigners", a); err != nil {
				return err
			}
		}
		if err := endpoint.Check(called); err != nil {
			return err
		}
		return daemon.Serve(cmd, &f, func(_ context.Context, p *run.Process, _, id string) (*daemon.Part, error) {
			creds, err := f.TLS.Client()
			if err != nil {
				return nil, err
			}
			d, err := distributor.New(distributor.Config{
				ID: id, Zone: f.Zone, Assigners: assigners, Logger: p.Log, Registerer: p.Registry,
				DialOptions:          []grpc.DialOption{grpc.WithTransportCredentials(creds)},
				AutoshardingEndpoint: called,
			})
			if err != nil {
				return nil, err
			}
			return &daemon.Part{Register: d.Register, Options: distributor.ServerOptions(), Ready: d.Ready, Close: d.Close}, nil
		})
	}
	f.Bind(cmd, "", run.DistributorPort)
	endpoint.Bind(cmd, &called)
	cmd.Flags().StringSliceVar(&assigners, "assigners", nil, "`host:port,...` of assigners; a DNS name with several addresses stands for all of them")
	return cmd
}
