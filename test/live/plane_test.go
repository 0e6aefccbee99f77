package live

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/assignment/wire"
	"github.com/slicer-project/slicer/distributor"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// startPlane starts an assigner on Pebble and a Distributor, each at a loopback
// port, and returns where the Distributor serves. They end with the test.
func startPlane(tb testing.TB) (distributorAddr string) {
	tb.Helper()
	db, err := pebblestore.Open(tb.TempDir(), pebblestore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	closeAtEnd(tb, db.Close)

	upstream, lis := listen(tb), listen(tb)
	addr := upstream.Addr().String()
	a, err := assigner.New(assigner.Config{ID: "a", Address: addr, Stores: []assigner.NamedStore{{Backend: db}}})
	if err != nil {
		tb.Fatal(err)
	}
	serve(tb, upstream, a.Register, a.Close, assigner.ServerOptions()...)
	d, err := distributor.New(distributor.Config{ID: "d", Assigners: []string{addr}})
	if err != nil {
		tb.Fatal(err)
	}
	serve(tb, lis, d.Register, d.Close, distributor.ServerOptions()...)
	return lis.Addr().String()
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return lis
}

// serve serves until the test is over; closeBehind ends what is behind the server.
func serve(tb testing.TB, lis net.Listener, register func(grpc.ServiceRegistrar), closeBehind func() error, opts ...grpc.ServerOption) {
	s := grpc.NewServer(opts...)
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	closeAtEnd(tb, func() error {
		err := closeBehind()
		s.Stop()
		return errors.Join(err, <-done)
	})
}

func closeAtEnd(tb testing.TB, end func() error) {
	tb.Cleanup(func() {
		if err := end(); err != nil {
			tb.Error(err)
		}
	})
}

// putJob makes the job as an operator would, through the Distributor.
func putJob(ctx context.Context, distributorAddr string, cfg assignment.JobConfig) error {
	conn, err := grpc.NewClient(distributorAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	admin := slicerv1.NewAdminServiceClient(conn)
	for {
		_, err = admin.PutJob(ctx, &slicerv1.PutJobRequest{Config: wire.JobToProto(cfg)})
		if status.Code(err) != codes.Unavailable {
			return err
		}
		// The Distributor has not reached its assigner yet.
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
