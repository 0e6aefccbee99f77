package remote_test

import (
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/lease/remote"
)

// A server's leases by way of two assigners with --serve-leases.
func Example() {
	var assigners []grpc.ClientConnInterface
	for _, address := range []string{"assigner-1.example:4710", "assigner-2.example:4710"} {
		conn, err := grpc.NewClient(address, append(remote.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		assigners = append(assigners, conn)
	}
	reader, err := lease.NewReader(lease.Config{Readers: remote.New(assigners...)})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	// It is slicelet.Config.Leases.
}
