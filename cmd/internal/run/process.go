package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slicer-project/slicer/assignment/access"
	"github.com/slicer-project/slicer/assignment/access/enforce"
)

// Process is a server process from its flags to its end.
type Process struct {
	Flags    *Flags
	Log      *slog.Logger
	Registry *prometheus.Registry
	Status   *Status
	// Rights are those of --policy, nil without.
	Rights *enforce.Rights
	// StopLimit is how long the stop of Wait may take; 0 stands for the constant.
	StopLimit time.Duration

	rereader *rereader
}

// Start checks the flags and opens the HTTP port. The process is not ready yet. From
// now on SIGHUP does not end it.
func Start(name string, f *Flags, errs io.Writer) (*Process, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	logs, err := f.Log.open(errs)
	if err != nil {
		return nil, err
	}
	log := logs.log
	p := &Process{Flags: f, Log: log, Registry: prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "slicer_build_info", Help: "Always 1; the labels tell what is running.",
		ConstLabels: prometheus.Labels{"program": name, "version": Version()},
	})
	build.Set(1)
	p.Registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	p.rereader = newRereader(log)
	if err := p.open(f); err != nil {
		p.rereader.close()
		return nil, err
	}
	if policy != nil {
		p.Rereads(policy.reread)
		p.rereader.wg.Go(func() { policy.watch(p.rereader.quit) })
	}
	p.Status.serveRuntime(logs, p.Rights)
	f.Plain.warn(log)
	log.Info("starting", "program", name, "version", Version())
	return p, nil
}

func (p *Process) open(f *Flags) (err error) {
	if err := p.opensTLS(&f.TLS); err != nil {
		return err
	}
	p.Status, err = NewStatus(f.HTTP, p.Registry, f.statusTLS(p.Log))
	return err
}

// policy reads the file of --policy, if there is one.
func (p *Process) policy() (*policyFile, error) {
	switch {
	case p.Flags.Policy == nil:
		return nil, nil
	case *p.Flags.Policy == "":
		if p.Flags.TLS.CA != "" {
			p.Log.Warn("without --policy each certificate of the authorities in --tls-ca may do everything")
		}
		return nil, nil
	}
	file, err := openPolicy(*p.Flags.Policy, p.Log, p.Registry)
	if err != nil {
		return nil, err
	}
	p.Rights = file.rights
	return file, nil
}

// Show has a status page answer on the HTTP port. Without a policy it is for those that may
// have /metrics; with one, the page itself says whom it is for.
func (p *Process) Show(page http.Handler) {
	if p.Rights == nil {
		page = p.Flags.statusTLS(p.Log).forKnown(page)
	}
	p.Status.Show(page)
}

// Identity is that of the certificate that this process shows to others.
func (p *Process) Identity() access.Identity {
	if p.Flags.TLS.source == nil {
		return access.Anonymous
	}
	return access.Of(p.Flags.TLS.source.Leaf())
}

// Close ends what Start began. It is for the ways out before Wait.
func (p *Process) Close() {
	p.rereader.close()
	p.Status.Close()
}

// Opening runs open, which may take a while, beside the caller. When ctx has ended and
// open does not return within StopLimit all the same, it is left to the end of the
// process, which is to follow.
func Opening[T any](ctx context.Context, open func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	result := make(chan outcome, 1)
	go func() {
		v, err := open(ctx)
		result <- outcome{v, err}
	}()
	select {
	case o := <-result:
		return o.value, o.err
	case <-ctx.Done():
	}
	limit := time.NewTimer(StopLimit)
	defer limit.Stop()
	select {
	case o := <-result:
		return o.value, o.err
	case <-limit.C:
		var none T
		return none, ctx.Err()
	}
}

// Ending is something that may end by itself, and the process with it.
type Ending struct {
	Done <-chan struct{}
	// Err says why, once Done is closed.
	Err func() error
}

// Wait returns once ctx or one of the endings has come and stop has run. An
// ending's error is returned. A stop that takes longer than StopLimit is given up.
func (p *Process) Wait(ctx context.Context, stop func() error, endings ...Ending) error {
	err := await(ctx, endings)
	if err != nil {
		p.Log.Error("stopping", "error", err)
	} else {
		p.Log.Info("stopping", "reason", "signal")
	}
	p.Status.NotReady("stopping")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	most := cmp.Or(p.StopLimit, StopLimit)
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case serr := <-stopped:
		p.Log.Info("stopped")
		if err == nil {
			err = serr
		}
	case <-limit.C:
		err = errors.Join(err, fmt.Errorf("gave up stopping in an orderly way after %s", most))
	}
	return err
}

// await returns nil when ctx ends, and the error of an ending that comes before.
func await(ctx context.Context, endings []Ending) error {
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	first := make(chan error, len(endings))
	for _, e := range endings {
		watchers.Go(func() {
			select {
			case <-e.Done:
				first <- e.Err()
			case <-ctx.Done():
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-first:
		return err
	}
}
