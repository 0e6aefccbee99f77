package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// maxTargets bounds how many servers are probed.
const maxTargets = 256

type probeView struct {
	At     time.Time `json:"at"`
	Target string    `json:"target"`
	OK     bool      `json:"ok"`
	// LatencyMS is how long the whole assignment took to arrive, or the failure.
	LatencyMS  float64 `json:"latency_ms"`
	Generation int64   `json:"generation,omitempty"`
	Slices     int     `json:"slices,omitempty"`
	// Behind says that another target had a newer generation before this one was asked.
	Behind bool   `json:"behind,omitempty"`
	Error  string `json:"error,omitempty"`
}

// prober asks servers for assignments as a subscriber would.
type prober struct {
	job     string
	clients []*client
	newest  int64 // that any target had in an earlier round
	m       *probeMetrics
}

type probeMetrics struct {
	probes     *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	generation *prometheus.GaugeVec
}

func newProbeMetrics(r prometheus.Registerer) *probeMetrics {
	m := &probeMetrics{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slicer_probe_total",
			Help: "Assignments that were asked for, by whether they came whole, were behind another server's, or failed."}, []string{"job", "target", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slicer_probe_latency_seconds",
			Help:    "Time until the whole assignment had come.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}, []string{"job", "target"}),
		generation: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slicer_probe_generation",
			Help: "Generation that the server has sent last."}, []string{"job", "target"}),
	}
	r.MustRegister(m.probes, m.latency, m.generation)
	return m
}

func (a *app) probeCommand() *cobra.Command {
	var targets []string
	var every time.Duration
	var address string
	cmd := &cobra.Command{
		Use:   "probe JOB",
		Short: "Ask every Distributor for an assignment, once or for ever",
		Long: `Asks each target, Distributors and Backup Distributors alike, for the job's newest
assignment, whole, as a program that starts would, and says how long that took and
which generation it was. Without --target it asks the one of --server. Done once,
it exits with 4 when a target failed. With --every it goes on until SIGINT or
SIGTERM, and with --metrics-address it serves what it sees to Prometheus
(slicer_probe_total by result ok, behind or failed; slicer_probe_latency_seconds).
A target is behind when another one had a newer generation a round earlier.`,
		Example: `  slicerctl probe my-job --target slicer-1.example.com:4720,slicer-2.example.com:4720,slicer-backup.example.com:4730
  slicerctl probe my-job --every 10s --metrics-address :9090 --json`,
		Args:              run.Args("JOB"),
		ValidArgsFunction: a.complete(jobs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			if len(targets) == 0 {
				targets = []string{a.server}
			}
			if len(targets) > maxTargets {
				return run.Usagef("--target: %d are too many: want at most %d", len(targets), maxTargets)
			}
			if every != 0 && every < 100*time.Millisecond {
				return run.Usagef("--every: %s is not allowed: want at least 100ms, or 0 for once", every)
			}
			if address != "" && every == 0 {
				return run.Usagef("--metrics-address: nothing is left to serve after one round: give --every too")
			}
			reg := prometheus.NewRegistry()
			p := &prober{job: args[0], m: newProbeMetrics(reg)}
			defer p.close()
			for _, t := range targets {
				b := *a
				if err := run.CheckDialable("--target", t); err != nil {
					return err
				}
				b.server = t
				c, err := b.dial()
				if err != nil {
					return err
				}
				p.clients = append(p.clients, c)
			}
			if address == "" {
				return p.loop(cmd.Context(), every, func(vs []probeView) error { return a.printProbes(cmd.OutOrStdout(), vs, every != 0) })
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
			return p.loop(cmd.Context(), every, func(vs []probeView) error { return a.printProbes(cmd.OutOrStdout(), vs, true) })
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&targets, "target", nil, "`host:port` of a Distributor or Backup Distributor to ask; repeated or with commas")
	fs.DurationVar(&every, "every", 0, "go on with a round of probes this often, at least 100ms; 0 is once")
	fs.StringVar(&address, "metrics-address", "", "`host:port` to serve /metrics on, with --every")
	return cmd
}

func (p *prober) close() {
	for _, c := range p.clients {
		_ = c.conn.Close()
	}
}

// loop probes in rounds. With one round only, a failure is an error.
func (p *prober) loop(ctx context.Context, every time.Duration, show func([]probeView) error) error {
	for {
		began := time.Now()
		vs := p.round(ctx)
		if ctx.Err() != nil && every != 0 {
			return nil // that is how it ends
		}
		if err := show(vs); err != nil {
			return err
		}
		if every == 0 {
			return failures(vs)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(began.Add(every))):
		}
	}
}

func failures(vs []probeView) error {
	var failed []string
	for _, v := range vs {
		if !v.OK {
			failed = append(failed, v.Target)
		}
	}
	if failed == nil {
		return nil
	}
	return &codedError{fmt.Sprintf("%d of %s failed: %s", len(failed), plural(len(vs), "target"), strings.Join(failed, ", ")), exitUnreachable}
}

// round asks all targets at once.
func (p *prober) round(ctx context.Context) []probeView {
	vs := make([]probeView, len(p.clients))
	var wg sync.WaitGroup
	for i, c := range p.clients {
		wg.Go(func() { vs[i] = p.probe(ctx, c) })
	}
	wg.Wait()
	newest := slices.MaxFunc(vs, func(v, w probeView) int { return int(min(max(v.Generation-w.Generation, -1), 1)) }).Generation
	for i := range vs {
		v := &vs[i]
		v.Behind = v.OK && v.Generation < p.newest
		p.note(v)
	}
	p.newest = max(p.newest, newest)
	return vs
}

func (p *prober) probe(ctx context.Context, c *client) probeView {
	v := probeView{At: time.Now().UTC(), Target: c.server}
	began := time.Now()
	a, err := c.fetch(ctx, p.job)
	v.LatencyMS = float64(time.Since(began).Microseconds()) / 1000
	if err != nil {
		v.Error = c.explain(err).Error()
		return v
	}
	v.OK, v.Generation, v.Slices = true, int64(a.Generation()), a.NumSlices()
	return v
}

func (p *prober) note(v *probeView) {
	result := "ok"
	switch {
	case !v.OK:
		result = "failed"
	case v.Behind:
		result = "behind"
	}
	p.m.probes.WithLabelValues(p.job, v.Target, result).Inc()
	if v.OK {
		p.m.latency.WithLabelValues(p.job, v.Target).Observe(v.LatencyMS / 1000)
		p.m.generation.WithLabelValues(p.job, v.Target).Set(float64(v.Generation))
	}
}

// printProbes prints a table, or with lines one line a probe.
func (a *app) printProbes(w io.Writer, vs []probeView, lines bool) error {
	switch {
	case a.json && lines:
		for i := range vs {
			if err := printLine(w, vs[i]); err != nil {
				return err
			}
		}
		return nil
	case a.json:
		return printJSON(w, vs)
	case lines:
		for i := range vs {
			if _, err := fmt.Fprintf(w, "%s %s\n", vs[i].At.Local().Format("15:04:05.000"), vs[i].line()); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable("TARGET", ">GENERATION", ">SLICES", ">LATENCY", "RESULT")
	for _, v := range vs {
		generation, size := "-", "-"
		if v.OK {
			generation, size = fmt.Sprint(v.Generation), fmt.Sprint(v.Slices)
		}
		t.row(v.Target, generation, size, v.latency(), v.result())
	}
	t.print(w)
	return nil
}

func (v *probeView) latency() string { return fmt.Sprintf("%.1fms", v.LatencyMS) }

func (v *probeView) result() string {
	switch {
	case !v.OK:
		return v.Error
	case v.Behind:
		return "behind"
	}
	return "ok"
}

func (v *probeView) line() string {
	if !v.OK {
		return fmt.Sprintf("%s failed after %s: %s", v.Target, v.latency(), v.Error)
	}
	return fmt.Sprintf("%s generation %d in %s: %s", v.Target, v.Generation, v.latency(), v.result())
}
