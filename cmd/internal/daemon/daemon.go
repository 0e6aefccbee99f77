// Package daemon is the life of a server process with one gRPC port: flags, probes,
// whatever it serves, and an orderly end. What assigner, distributor and
// backupdist serve is in packages of their own, so that none of them links what
// it does not need.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/cmd/internal/introspect"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Part is what a process serves on its port.
type Part struct {
	Register func(grpc.ServiceRegistrar)
	Options  []grpc.ServerOption
	Ready    func() error
	Close    func() error
	// Admit, if not nil, is what stands before the listener.
	Admit func(net.Listener) net.Listener
	// Endings of the process besides its server's.
	Endings []run.Ending
}

// Closes has Close close something more, before what it closes already.
func (p *Part) Closes(c func() error) {
	rest := p.Close
	p.Close = func() error { return errors.Join(c(), rest()) }
}

// Serve runs a process with one gRPC port from its flags to its end. open makes the part;
// it may take a while. The port is taken before, and connections to it are closed until
// the part is there.
func Serve(cmd *cobra.Command, f *run.Flags, open func(ctx context.Context, p *run.Process, advertised, id string) (*Part, error)) error {
	ctx := cmd.Context()
	p, err := run.Open(cmd.Name(), f, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer p.Close()
	defer p.Listener.Close()
	accept := turnAway(p.Listener)
	part, err := run.Opening(ctx, func(ctx context.Context) (*Part, error) { return open(ctx, p.Process, p.Advertised, p.ID) })
	notAccepted := accept()
	switch {
	case err != nil && ctx.Err() != nil:
		p.Log.Info("stopped before it was ready")
		return nil
	case err != nil:
		return err
	case notAccepted != nil:
		return errors.Join(fmt.Errorf("--listen: %w", notAccepted), part.Close())
	}
	lis := p.Listener
	if part.Admit != nil {
		lis = part.Admit(lis)
	}
	tools := introspect.New(introspect.Config{Ready: p.Status.Ready, Rights: p.Rights})
	s := run.Serve(lis, p.Credentials, tools.After(part.Register), part.Options...)
	p.Status.SetReady(part.Ready)
	p.Log.Info("serving", "listen", s.Addr().String(), "advertise", p.Advertised, "id", p.ID, "http", p.Status.Where())
	return p.Wait(ctx, func() error {
		tools.Close()
		return s.Stop(part.Close)
	}, append(part.Endings, s.Ending())...)
}

// turnAway closes each connection to lis until accept is called: left alone, one that
// comes while a part opens would hang, and were the port given up for that time, another
// process could take it.
func turnAway(lis net.Listener) (accept func() error) {
	tcp := lis.(*net.TCPListener)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := tcp.Accept()
			switch {
			case err == nil:
				_ = conn.Close()
			case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
				return
			default: // such as too many open files: gRPC goes on, too
				time.Sleep(5 * time.Millisecond)
			}
		}
	}()
	return func() error {
		err := tcp.SetDeadline(time.Unix(1, 0))
		if err != nil {
			return err
		}
		<-ended
		return tcp.SetDeadline(time.Time{})
	}
}
