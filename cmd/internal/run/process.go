package run

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Process is a server process from its flags to its end.
type Process struct {
	Flags    *Flags
	Log      *slog.Logger
	Registry *prometheus.Registry
	Status   *Status
}

// Start checks the flags and opens the HTTP port. The process is not ready yet.
func Start(name string, f *Flags, errs io.Writer) (*Process, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	log, err := f.Logger(errs)
	if err != nil {
		return nil, err
	}
	p := &Process{Flags: f, Log: log, Registry: prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_build_info", Help: "Always 1; the labels tell what is running.",
		ConstLabels: prometheus.Labels{"program": name, "version": Version()},
	})
	build.Set(1)
	p.Registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if p.Status, err = NewStatus(f.HTTP, p.Registry); err != nil {
		return nil, err
	}
	log.Info("starting", "program", name, "version", Version())
	return p, nil
}

// Close ends what Start began. It is for the ways out before Wait.
func (p *Process) Close() { p.Status.Close() }

// Wait returns once ctx has ended, or ended is closed, and stop has run. A stop
// that takes longer than StopLimit is given up.
func (p *Process) Wait(ctx context.Context, ended <-chan struct{}, stop func() error) error {
	select {
	case <-ctx.Done():
		p.Log.Info("stopping", "reason", "signal")
	case <-ended:
		p.Log.Error("stopping", "reason", "the server has ended by itself")
	}
	p.Status.NotReady("stopping")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	limit := time.NewTimer(StopLimit)
	defer limit.Stop()
	select {
	case err := <-stopped:
		p.Log.Info("stopped")
		return err
	case <-limit.C:
		return fmt.Errorf("gave up stopping in an orderly way after %s", StopLimit)
	}
}
