package alerts

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
	"github.com/slicer-project/slicer/loadbalance/overload"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
)

const (
	busySlots = 2
	busyTakes = 20 * time.Millisecond
	busyCan   = busySlots * int(time.Second/busyTakes) // requests a second
	busyWait  = 400 * time.Millisecond
)

// runBusy runs a server whose handlers wait for one of two slots, and a client that asks for
// half of what they can do, or from a SIGUSR1 to the next for ten times as much as they can.
func runBusy(metrics, distributor string) error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	reg := prom.NewRegistry()
	s, err := slicelet.New(slicelet.Config{Job: busyJob, Task: "busy-0", Address: lis.Addr().String(), Distributors: []string{distributor}, Registerer: reg})
	if err != nil {
		return err
	}
	slots := make(chan struct{}, busySlots)
	h, err := slicelethttp.Handler(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			time.Sleep(busyTakes)
			<-slots
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}), slicelethttp.Config{})
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- http.Serve(lis, h) }()
	go func() { failed <- http.ListenAndServe(metrics, promhttp.HandlerFor(reg, promhttp.HandlerOpts{})) }()
	// The job is made before this process begins, and clients wait for the task.
	ck, err := clerk.New(clerk.Config{Job: busyJob, Distributors: []string{distributor}})
	if err != nil {
		return err
	}
	tr, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: ck})
	if err != nil {
		return err
	}
	var flood atomic.Bool
	go func() {
		flips := make(chan os.Signal, 1)
		signal.Notify(flips, syscall.SIGUSR1)
		for range flips {
			flood.Store(!flood.Load())
		}
	}()
	const every = 10 * time.Millisecond
	pause := time.NewTicker(every)
	for due := 0.; ; {
		select {
		case err := <-failed:
			return err
		case <-pause.C:
		}
		times := .5
		if flood.Load() {
			times = 10
		}
		for due += times * float64(busyCan) * every.Seconds(); due >= 1; due-- {
			go func() {
				if err := askBusy(tr); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(clerk.Overloaded)) && !errors.Is(err, clerkhttp.ErrNoTask) {
					select {
					case failed <- err:
					default:
					}
				}
			}()
		}
	}
}

func askBusy(tr *clerkhttp.Transport) error {
	ctx, cancel := context.WithTimeout(context.Background(), busyWait)
	defer cancel()
	ctx = overload.WithCriticality(clerk.WithKey(ctx, "key"), overload.Critical)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://busy/", nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
