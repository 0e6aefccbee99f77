package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/cmd/internal/run"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// client is a connection to the server.
type client struct {
	server  string
	at      *target // what it was chosen by
	named   string  // what says where the server is, for errors
	timeout time.Duration
	conn    *grpc.ClientConn
	admin   slicerv1.AdminServiceClient
	sub     slicerv1.SubscriberServiceClient
}

func (a *app) dial() (*client, error) {
	t, err := a.locator.target()
	if err != nil {
		return nil, err
	}
	return a.dialTo(t, t.server.Value, "")
}

// dialTo connects to one server of a control plane, whose certificate is for name if that
// is not empty.
func (a *app) dialTo(t *target, server, name string) (*client, error) {
	if a.timeout <= 0 {
		return nil, run.Usagef("--timeout: %s is not allowed: want more than 0", a.timeout)
	}
	opts, err := t.dialOptions()
	if err != nil {
		return nil, err
	}
	if name != "" {
		opts = append(opts, grpc.WithAuthority(name))
	}
	conn, err := grpc.NewClient(server, opts...)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	named := t.server.From
	if named == byDefault || named == "--"+serverFlag {
		named = "--server, " + ServerEnv + " or a context"
	}
	return &client{
		server: server, at: t, named: named, timeout: a.timeout, conn: conn,
		admin: slicerv1.NewAdminServiceClient(conn), sub: slicerv1.NewSubscriberServiceClient(conn),
	}, nil
}

func (t *target) dialOptions() ([]grpc.DialOption, error) {
	creds, err := t.tls().Client()
	if err != nil {
		return nil, t.blame(err)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}, nil
}

// with runs a command that needs the server. What it returns is explained.
func (a *app) with(do func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.dial()
		if err != nil {
			return err
		}
		defer c.conn.Close()
		return c.explain(do(cmd.Context(), c, cmd, args))
	}
}

// call makes one call within the timeout.
func call[Req, Resp any](ctx context.Context, c *client, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return f(ctx, req)
}

// fetch gets a job's newest assignment whole.
func (c *client) fetch(ctx context.Context, job string) (*assignment.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stream, err := c.sub.Fetch(ctx, &slicerv1.FetchRequest{Job: job, Compressed: true})
	if err != nil {
		return nil, err
	}
	var pieces wire.Assembler
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, status.Error(codes.DataLoss, "the assignment was not sent whole")
		case err != nil:
			return nil, err
		case m.GetChunk() != nil:
			if err := pieces.Add(m.GetChunk()); err != nil {
				return nil, err
			}
		case m.GetTrailer() != nil:
			return pieces.Finish(m.GetTrailer(), nil)
		}
	}
}

// checkJob refuses what can be no job's name before a server is asked.
func checkJob(name string) error {
	if err := assignment.ValidateJobName(name); err != nil {
		return &run.UsageError{Err: err}
	}
	return nil
}
