package ctl

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

const (
	// maxTargets bounds how many servers are probed.
	maxTargets = 256
	// minInterval is the shortest between rounds.
	minInterval = 100 * time.Millisecond
)

func (a *app) probeCommand() *cobra.Command {
	var targets []string
	var interval time.Duration
	var address string
	cmd := &cobra.Command{
		Use:   "probe [JOB...]",
		Short: "Ask every Distributor for assignments, once or for ever",
		Long: `Asks each target, Distributors and Backup Distributors alike, for the newest
assignment of each job, whole, as a program that starts would, selects the task for
some key in it as a clerk would, and says how long that took and which generation it
was. Without a JOB it asks for every job there is; without --target it asks the one of
--server. A target whose name has several addresses stands for all of them.

Done once, it exits with 4 when a target failed, or when a store did not name its
jobs. It exits with 3 when every target answered, and a job has no assignment at any of
them: because it has no servers yet, which is no fault of Slicer's, or because there is
no such job. With --interval it goes on until SIGINT or SIGTERM, and with --metrics-address
it serves what it sees to Prometheus: slicer_probe_selections_total by result, whose
share of found is the availability that users see (Slicer paper, section 5.1);
slicer_probe_total by result ok, behind, empty (no servers yet) or failed;
slicer_probe_latency_seconds; and, without a JOB, slicer_probe_lists_total by result ok or
failed: while the jobs cannot be listed, because the store is down or full, those that were
listed last go on being probed. A target is behind when another one had a newer generation
a round earlier.`,
		Example: `  slicerctl probe --target slicer-1.example.com:4720,slicer-2.example.com:4720,slicer-backup.example.com:4730
  slicerctl probe my-job --interval 10s --metrics-address :9090 --json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.complete(jobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, job := range args {
				if err := checkJob(job); err != nil {
					return err
				}
			}
			at, err := a.locator.target()
			if err != nil {
				return err
			}
			if len(targets) == 0 {
				targets = []string{at.server.Value}
			}
			if interval != 0 && interval < minInterval {
				return run.Usagef("--interval: %s is not allowed: want at least %s, or 0 for once", interval, minInterval)
			}
			if address != "" && interval == 0 {
				return run.Usagef("--metrics-address: nothing is left to serve after one round: give --interval too")
			}
			for _, t := range targets {
				if err := run.CheckDialable("--target", t); err != nil {
					return err
				}
			}
			reg := prometheus.NewRegistry()
			p := &prober{jobs: args, newest: map[string]int64{}, m: newProbeMetrics(reg), errs: cmd.ErrOrStderr()}
			defer p.close()
			if err := a.dialAll(cmd.Context(), p, at, targets); err != nil {
				return err
			}
			if cmd.Flags().Changed("target") {
				for _, c := range p.clients {
					c.named = "--target"
				}
			}
			if address == "" {
				return p.loop(cmd.Context(), interval, func(vs []probeView) error { return a.printProbes(cmd.OutOrStdout(), vs, interval != 0) })
			}
			lis, err := run.Listen("--metrics-address", address)
			if err != nil {
				return err
			}
			srv := &http.Server{Handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), ReadHeaderTimeout: 5 * time.Second}
			var wg sync.WaitGroup
			wg.Go(func() { _ = srv.Serve(lis) })
			defer wg.Wait()
			defer srv.Close()
			return p.loop(cmd.Context(), interval, func(vs []probeView) error { return a.printProbes(cmd.OutOrStdout(), vs, true) })
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&targets, "target", nil, "`host:port` of a Distributor or Backup Distributor to ask; repeated or with commas")
	fs.DurationVar(&interval, "interval", 0, "go on with a round of probes this often, at least 100ms; 0 is once")
	fs.StringVar(&address, "metrics-address", "", "`host:port` to serve /metrics on, with --interval")
	return cmd
}
