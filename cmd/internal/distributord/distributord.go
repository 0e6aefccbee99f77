// Package distributord is the program distributor.
package distributord

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/cmd/internal/daemon"
	"github.com/slicer-project/slicer/cmd/internal/endpoint"
	"github.com/slicer-project/slicer/cmd/internal/page"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/distributor"
)

// Command returns the program, which brings assignments to clerks and slicelets.
func Command() *cobra.Command {
	var f run.Flags
	var assigners, upstreams []string
	var called string
	var serveDistributors bool
	cmd := &cobra.Command{
		Use:   "distributor --assigners HOST:PORT,... | --upstreams HOST:PORT,... [flags]",
		Short: "Bring assignments to clerks and slicelets, and their health and load to assigners",
		Long: `The distributor is what clerks, slicelets and slicerctl connect to. It passes on
health and load to each job's preferred assigner, and assignments to all that
subscribes. It keeps no state on disk: run as many as there are subscribers for,
about one for ten thousand, and two at least.

It also serves gRPC's own auto-sharding protocol, to clients in any language whose
load balancing policy is autosharding_experimental: the target is a job's name; and
xDS, to stock gRPC clients that dial xds:///JOB.

While all assigners are dead it goes on serving what it holds.

With --upstreams it is of the second tier: it gets assignments from distributors of
the first, those with --assigners and --serve-distributors, and what it tells
assigners passes through them.
Clerks, slicelets and slicerctl see no difference. There is no third tier.`,
		Example: `  distributor --assigners assigner-1:4710,assigner-2:4710
  distributor --assigners assigner-1:4710,assigner-2:4710 --serve-distributors
  distributor --upstreams distributor-1:4720,distributor-2:4720
  distributor --assigners slicer-assigners.default.svc:4710 --zone eu-1`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case len(assigners)+len(upstreams) == 0:
			return run.Usagef("--assigners is missing: want host:port of one assigner or more, separated by commas, or --upstreams")
		case len(assigners) > 0 && len(upstreams) > 0:
			return run.Usagef("--upstreams: not allowed together with --assigners: a distributor of the second tier reaches assigners through its upstreams alone")
		case serveDistributors && len(upstreams) > 0:
			return run.Usagef("--serve-distributors: not allowed together with --upstreams: there is no third tier")
		}
		for flag, addresses := range map[string][]string{"--assigners": assigners, "--upstreams": upstreams} {
			for _, a := range addresses {
				if err := run.CheckDialable(flag, a); err != nil {
					return err
				}
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
				ID: id, Zone: f.Zone, Assigners: assigners, Upstreams: upstreams, ServeDistributors: serveDistributors, Logger: p.Log, Registerer: p.Registry,
				DialOptions:          []grpc.DialOption{grpc.WithTransportCredentials(creds)},
				AutoshardingEndpoint: called, Rights: p.Rights,
			})
			if err != nil {
				return nil, err
			}
			part := &daemon.Part{Register: d.Register, Options: distributor.ServerOptions(), Admit: d.Admit, Ready: d.Ready, Close: d.Close}
			part.Closes(page.Of(p, "distributor", id, d.Register).Close)
			return part, nil
		})
	}
	f.Bind(cmd, "", run.DistributorPort)
	f.BindPolicy(cmd)
	f.BindPage(cmd)
	endpoint.Bind(cmd, &called)
	cmd.Flags().StringSliceVar(&assigners, "assigners", nil, "`host:port,...` of assigners; a DNS name with several addresses stands for all of them")
	cmd.Flags().StringSliceVar(&upstreams, "upstreams", nil, "`host:port,...` of distributors of the first tier, in place of --assigners: makes this one of the second; names as there")
	cmd.Flags().BoolVar(&serveDistributors, "serve-distributors", false, "take distributors of the second tier below this one: a client that may connect to it can then speak with assigners through it, as a distributor")
	return cmd
}
