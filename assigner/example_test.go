package assigner_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// An assigner on an embedded store, and an operator who makes a job.
func Example() {
	dir, err := os.MkdirTemp("", "slicer")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	st, err := pebblestore.Open(dir, pebblestore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	a, err := assigner.New(assigner.Config{
		ID: "assigner-1", Address: lis.Addr().String(),
		Stores: []assigner.NamedStore{{Backend: st}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(assigner.ServerOptions()...)
	a.Register(server)
	served := make(chan error)
	go func() { served <- server.Serve(lis) }()

	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	job, err := slicerv1.NewAdminServiceClient(conn).PutJob(context.Background(),
		&slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: "cache"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Job.Config.Name, "version", job.Job.Version)

	conn.Close()
	a.Close()
	server.GracefulStop()
	<-served
	// Output: cache version 1
}
